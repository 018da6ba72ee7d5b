"""The table of faults, in the terminal and in docs/measured/drills.md, and its JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from tests.drills.faults.experiment import FaultReport
from tests.drills.running import print_table
from tests.markdown import table

_HEADINGS = (
    "fault",
    "how it was caused",
    "s",
    "/judge (slowest)",
    "/calibrate (slowest)",
    "/readyz",
    "lost",
    "doubled",
    "s to healthy",
)
_PAGE_HEADINGS = (
    "faults",
    "/judge",
    "/calibrate",
    "/readyz",
    "slowest /judge, s",
    "slowest /calibrate, s",
    "examples lost",
    "s to healthy",
)
# Answers that take longer have a row of their own in the document.
_SLOW_S = 1.0
# Answers of a healthy service.
_HEALTHY = ("200", "200 ready")
_SHORT = {
    "no answer (refused)": "refused",
    "no answer (cut)": "cut",
    "no answer (silent)": "silent",
}


def _cells(outcome: FaultReport) -> list[str]:
    if outcome.skipped:
        return [outcome.name, outcome.how, "-", f"skipped: {outcome.skipped}", *["-"] * 5]
    return [
        outcome.name,
        outcome.how,
        f"{outcome.seconds:g}",
        f"{_counted(outcome.judge)} ({outcome.judge_slowest_s:.2f} s)",
        f"{_counted(outcome.calibrate)} ({outcome.calibrate_slowest_s:.2f} s)",
        _counted(outcome.readyz),
        f"{outcome.lost} of {outcome.examples}",
        f"{outcome.doubled}",
        "never" if outcome.healthy_s is None else f"{outcome.healthy_s:.1f}",
    ]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} x {_SHORT.get(what, what)}" for what, n in counts.items()) or "nothing"


def print_outcomes(outcomes: Sequence[FaultReport]) -> None:
    """Prints one line for each fault, then the broken promises."""
    red = {number for number, outcome in enumerate(outcomes) if outcome.wrong}
    print_table("scope-judge: faults", _HEADINGS, [*map(_cells, outcomes)], red=red)
    console = Console(soft_wrap=True, highlight=False)
    for outcome in outcomes:
        for text in outcome.wrong:
            console.print(f"[red]{outcome.name}: {escape(text)}[/]")
        for text in outcome.notes:
            console.print(f"[dim]{outcome.name}: {escape(text)}[/]")


def markdown(outcomes: Sequence[FaultReport]) -> str:
    """The table for the document: a row for the faults that callers see in the same way."""
    alike: dict[tuple[str | bool, ...], list[FaultReport]] = {}
    for outcome in outcomes:
        slow = max(outcome.judge_slowest_s, outcome.calibrate_slowest_s) >= _SLOW_S
        alike.setdefault((*_answers(outcome), slow, outcome.lost > 0), []).append(outcome)
    page = table(_PAGE_HEADINGS, [_page_cells(each) for each in alike.values()])
    wrong = [f"- `{outcome.name}`: {text}" for outcome in outcomes for text in outcome.wrong]
    return "\n".join([page, "", "Not as promised:", "", *wrong]) if wrong else page


def _page_cells(alike: Sequence[FaultReport]) -> list[str]:
    healthy = [outcome.healthy_s for outcome in alike]
    lost = [f"{outcome.lost} of {outcome.examples}" for outcome in alike if outcome.lost]
    cells = [
        ", ".join(f"`{outcome.name}`" for outcome in alike),
        *_answers(alike[0]),
        f"{max(outcome.judge_slowest_s for outcome in alike):.2f}",
        f"{max(outcome.calibrate_slowest_s for outcome in alike):.2f}",
        "<br>".join(lost) or "0",
        "never" if None in healthy else f"{max(filter(None, healthy), default=0.0):.1f}",
    ]
    return [cell.replace("|", "/") for cell in cells]


def _answers(outcome: FaultReport) -> list[str]:
    if outcome.skipped:
        return [f"skipped: {outcome.skipped}", "-", "-"]
    return [_unhealthy(each) for each in (outcome.judge, outcome.calibrate, outcome.readyz)]


def _unhealthy(counts: Mapping[str, int]) -> str:
    """The answers that a healthy service does not give; 200 if there were none."""
    return ", ".join(_SHORT.get(what, what) for what in counts if what not in _HEALTHY) or "200"


def faults_json(outcomes: Sequence[FaultReport]) -> dict[str, Any]:
    """All outcomes, for JSON."""
    return {"faults": [dataclasses.asdict(outcome) for outcome in outcomes]}
