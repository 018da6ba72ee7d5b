"""The results of `scope-judge evaluate`: results.json, report.html, and tables on stdout."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.assessment import alphas_table
from app.cli.console import console, failure
from app.wiring.startup import LEAST_LABEL_MASS

# Most modules of app.evaluation need libraries of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.protocol import Row
    from app.evaluation.results import DatasetResults, Results

# The rules behind the two guarantees of the service.
_RULES = {"scope": "marginal (scope)", "pac": "pac"}
# Width of a row of the tables: a pipe or a narrow terminal must not break rows.
_LEAST_WIDTH = 90


def write_results(results: "Results", folder: Path) -> None:
    """Writes results.json and report.html into a folder, and prints the tables.

    Raises:
        typer.Exit: A file cannot be written.
    """
    from app.evaluation.judgments.ownership import RESULTS_NAME
    from app.evaluation.report.page import write_report
    from app.evaluation.results import to_json

    report = folder / "report.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULTS_NAME).write_text(to_json(results), encoding="utf-8")
        write_report(results, report)
    except OSError as exc:
        raise failure(f"{exc.filename} cannot be written: {exc.strerror}") from None
    # The tables are the result, so they go to stdout.
    printed = Console(highlight=False)
    printed.width = max(printed.width, _LEAST_WIDTH)
    for dataset in results.datasets:
        _warn_of_low_label_mass(dataset)
        printed.print(_quality_table(dataset))
        bpe = next((found for found in dataset.methods if found.method == "bpe"), None)
        if bpe is None or not bpe.rows:
            printed.print("too few pairs to calibrate on one half\n")
            continue
        printed.print(splits_table(bpe.rows, bpe.n))
        printed.print(alphas_table(dataset.all_labels, bpe.n))
    console.print(f"report: {report.resolve()}", highlight=False, soft_wrap=True)


def _warn_of_low_label_mass(dataset: "DatasetResults") -> None:
    mass = dataset.label_mass
    if mass is not None and mass < LEAST_LABEL_MASS:
        console.print(
            f"[yellow]warning:[/] {escape(dataset.name)}: the labels A and B together have a "
            f"probability of only {mass:.1e} (median) in this judge's answers, so its preferences "
            "are unreliable; try another SCOPE_PREFILL or prompt",
            highlight=False,
            soft_wrap=True,
        )


def _quality_table(dataset: "DatasetResults") -> Table:
    from app.evaluation.methods import METHODS

    title = f"{escape(dataset.name)}: {dataset.n} pairs"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("signal")
    for heading in ("n", "missing", "accuracy", "ECE", "AUROC", "AUPRC"):
        table.add_column(heading, justify="right")
    for found in dataset.methods:
        table.add_row(
            METHODS[found.method].title,
            str(found.n),
            str(found.unparsed + found.failed),
            *("-" if value is None else f"{value:.3f}" for value in found.quality),
        )
    return table


def splits_table(rows: "Sequence[Row]", n: int) -> Table:
    """SCOPE and pac at every alpha, calibrated on one random half and tested on the other.

    Args:
        rows: Rows of the protocol; other rules are left out.
        n: Number of labelled pairs.
    """
    shown = [row for row in rows if row.selector in ("scope", "pac")]
    splits = shown[0].outcome.splits if shown else 0
    title = (
        f"mean of {splits} splits: calibrated on {n // 2} random labels, tested on the other "
        f"{n - n // 2}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule on BPE")
    for heading in ("alpha", "coverage", "risk", "errors / accepted", "splits above alpha"):
        table.add_column(heading, justify="right")
    for row in shown:
        outcome = row.outcome
        ratio = outcome.ratio_of_sums
        table.add_row(
            _RULES[row.selector],
            f"{row.alpha:g}",
            f"{outcome.coverage:.3f}",
            f"{outcome.risk:.3f}",
            "-" if ratio is None else f"{ratio:.3f}",
            f"{outcome.share_above_alpha:.1%}",
        )
    return table
