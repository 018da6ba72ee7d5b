"""The table of faults, in the terminal and in docs/guides/reliability.md, and its JSON."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.benchmarks.report import about
from tests.drills.faults.experiment import Outcome

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "guides" / "reliability.md"
MEASURED = ROOT / "docs" / "measured"

_COLUMNS = (
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
_ALIKE = {
    "no answer (refused)": "refused",
    "no answer (cut)": "cut",
    "no answer (silent)": "silent",
}


def _cells(outcome: Outcome) -> list[str]:
    if outcome.skipped:
        return [outcome.name, outcome.how, "-", f"skipped: {outcome.skipped}", *["-"] * 5]
    healthy = "never" if outcome.healthy_s is None else f"{outcome.healthy_s:.1f}"
    return [
        outcome.name,
        outcome.how,
        f"{outcome.seconds:g}",
        f"{_counted(outcome.judge)} ({outcome.judge_slowest_s:.2f} s)",
        f"{_counted(outcome.calibrate)} ({outcome.calibrate_slowest_s:.2f} s)",
        _counted(outcome.readyz),
        f"{outcome.lost} of {outcome.examples}",
        f"{outcome.doubled}",
        healthy,
    ]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} x {_ALIKE.get(what, what)}" for what, n in counts.items()) or "nothing"


def print_table(outcomes: Sequence[Outcome], console: Console) -> None:
    """Prints one line for each fault, then the broken promises."""
    table = Table(title="scope-judge: faults")
    for column in _COLUMNS:
        table.add_column(column)
    for outcome in outcomes:
        table.add_row(*map(escape, _cells(outcome)), style="red" if outcome.wrong else None)
    console.print(table)
    for outcome in outcomes:
        for text in outcome.wrong:
            console.print(f"[red]{outcome.name}: {escape(text)}[/]", highlight=False)
        for text in outcome.notes:
            console.print(f"[dim]{outcome.name}: {escape(text)}[/]", highlight=False)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table for the document."""
    rows = [
        _COLUMNS,
        tuple("---" for _ in _COLUMNS),
        *(
            tuple(f"`{cell}`" if i == 0 else cell.replace("|", "/") for i, cell in enumerate(cells))
            for cells in map(_cells, outcomes)
        ),
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    wrong = [f"- `{outcome.name}`: {text}" for outcome in outcomes for text in outcome.wrong]
    if wrong:
        lines += ["", "Not as promised:", "", *wrong]
    return "\n".join(lines)


def write_json(name: str, content: Mapping[str, Any]) -> Path:
    """Writes figures with the time, commit, machine and versions of their measurement."""
    file = MEASURED / f"{name}.json"
    # The benchmarks collect these facts, too.
    facts = about(repeats=1, quick=False)
    whole = {k: facts[k] for k in ("made", "commit", "machine", "versions")} | dict(content)
    file.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return file


def faults_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All outcomes, for JSON."""
    return {"faults": [dataclasses.asdict(outcome) for outcome in outcomes]}
