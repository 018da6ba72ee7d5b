"""The screen that answers "is my judge good enough?", for `curve` and `calibrate`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.console import print_sentence
from app.core.assessment import (
    AlphaInterval,
    AlphaRow,
    Assessment,
    alphas_in_words,
    note_on_looking,
    recommendation,
)

# Width of a row of the table: a pipe or a narrow terminal must not break rows.
_LEAST_WIDTH = 90


def print_assessment(found: Assessment, *, stderr: bool = False) -> None:
    """Prints the figures, a table of alphas, the feasible alphas, and one recommendation.

    Args:
        found: The figures.
        stderr: Print to stderr instead of stdout.
    """
    printed = Console(stderr=stderr)
    printed.width = max(printed.width, _LEAST_WIDTH)
    printed.print(_figures(found), highlight=False)
    if found.n:
        printed.print(alphas_table(found.rows, found.n), highlight=False)
        sets = "; ".join(
            f"{name} {alphas_in_words(intervals)}" for name, intervals in found.feasible.items()
        )
        print_sentence(f"feasible alphas, in steps of 0.001: {sets}\n", printed)
    print_sentence(f"[bold]{recommendation(found)}[/]", printed)
    note = note_on_looking(found)
    if note is not None:
        print_sentence(note, printed)


def print_table(table: Table) -> None:
    """Prints a table to stdout, wide enough that no row is broken."""
    printed = Console()
    printed.width = max(printed.width, _LEAST_WIDTH)
    printed.print(table, highlight=False)


def alphas_table(rows: Sequence[AlphaRow], n: int) -> Table:
    """Both guarantees at every alpha, calibrated on all of the n labels."""
    title = f"calibrated on all {n} labels"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    headings = ("guarantee", "alpha", "threshold", "coverage", "empirical risk", "more labels")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for row in rows:
        delta = "" if row.delta is None else f", delta {row.delta:g}"
        table.add_row(
            row.guarantee + delta,
            f"{row.alpha:g}",
            "infeasible" if row.threshold is None else f"{row.threshold:.6f}",
            f"{row.coverage:.3f}",
            "" if row.empirical_risk is None else f"{row.empirical_risk:.3f}",
            _more(row),
        )
    return table


def assessment_of_answer(answer: Mapping[str, Any]) -> Assessment:
    """The assessment of an answer of GET /calibrations/{name}."""
    more = {_key(each): each["more_examples"] for each in answer["infeasible"]}
    return Assessment(
        # Pairs that people found equal are no labels; services of older releases keep none.
        n=answer.get("labelled", answer["n"]),
        accuracy=answer["accuracy"],
        auroc=answer["auroc"],
        position_flips=answer["position_flips"],
        rows=[
            AlphaRow(
                guarantee=row["guarantee"],
                alpha=row["alpha"],
                delta=row["delta"],
                threshold=row["threshold"],
                coverage=row["coverage"],
                empirical_risk=row["empirical_risk"],
                more_labels=more.get(_key(row)),
            )
            for row in answer["thresholds"]
        ],
        feasible={
            each["guarantee"]: [AlphaInterval(*interval) for interval in each["intervals"]]
            for each in answer["feasible_alphas"]
        },
    )


def _key(row: Mapping[str, Any]) -> tuple[str, float]:
    return row["guarantee"], row["alpha"]


def _figures(found: Assessment) -> str:
    parts = [f"n = {found.n}"]
    if found.accuracy is not None and found.accuracy_interval is not None:
        low, high = found.accuracy_interval
        parts.append(f"accuracy {found.accuracy:.3f} (95% interval {low:.3f} to {high:.3f})")
    if found.auroc is not None:
        parts.append(f"AUROC {found.auroc:.3f}")
    if found.position_flips is not None:
        parts.append(f"position flips {found.position_flips:.1%}")
    return ", ".join(parts)


def _more(row: AlphaRow) -> str:
    if row.threshold is not None:
        return ""
    # The error rate is too high at every confidence, so that more labels do not help.
    return "never enough" if row.more_labels is None else f"about {row.more_labels}"
