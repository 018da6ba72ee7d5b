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
    """The table for the document."""
    rows = []
    for name, *cells in map(_cells, outcomes):
        rows.append([f"`{name}`", *(cell.replace("|", "/") for cell in cells)])
    wrong = [f"- `{outcome.name}`: {text}" for outcome in outcomes for text in outcome.wrong]
    page = table(_HEADINGS, rows)
    return "\n".join([page, "", "Not as promised:", "", *wrong]) if wrong else page


def faults_json(outcomes: Sequence[FaultReport]) -> dict[str, Any]:
    """All outcomes, for JSON."""
    return {"faults": [dataclasses.asdict(outcome) for outcome in outcomes]}
