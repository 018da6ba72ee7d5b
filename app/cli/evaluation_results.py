"""The results of `scope-judge evaluate`: results.json, report.html, and tables on stdout."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from app.cli.assessment import print_alphas
from app.cli.console import CommandError, print_table, say, stdout
from app.files.replacing import replace_text
from app.service.scoring.label_logits import LEAST_LABEL_MASS

# Most modules of app.evaluation need libraries of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.comparison import ComparedDataset
    from app.evaluation.measurement import JudgedDataset
    from app.evaluation.protocol import Design, RuleOutcome
    from app.evaluation.results import DatasetResults, Results

# The rules behind the two guarantees of the service.
_RULES = {"scope": "marginal (scope)", "pac": "pac"}


def write_results(results: "Results", folder: Path) -> None:
    """Writes results.json and report.html into a folder, and prints the tables.

    Raises:
        CommandError: A file cannot be written.
    """
    from app.evaluation.judgments.ownership import RESULTS_NAME
    from app.evaluation.report.page import write_report
    from app.evaluation.results import to_json

    report = folder / "report.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / RESULTS_NAME, to_json(results))
        write_report(results, report)
    except OSError as exc:
        raise CommandError(f"{exc.filename} cannot be written: {exc.strerror}") from None
    # The tables are the result, so they go to stdout.
    for dataset in results.datasets:
        _warn_of_low_label_mass(dataset)
        _print_quality(dataset)
        bpe = next((each for each in dataset.methods if each.method == "bpe"), None)
        if bpe is None or not bpe.rows:
            say("too few pairs to calibrate on one half", output=stdout)
            say("", output=stdout)
            continue
        print_splits(bpe.rows, bpe.n)
        print_alphas(dataset.all_labels, bpe.n)
    say(f"report: {report.resolve()}")


def write_costs(sources: "Mapping[str, JudgedDataset]", folder: Path) -> None:
    """Prints what a pair has cost by each method in this run, and writes cost.json.

    Nothing is printed or written if this run asked the judge nothing. The costs are not part of the
    results: a run that was resumed has the same results as one that was not.

    Raises:
        CommandError: The file cannot be written.
    """
    from app.evaluation.judgments.ownership import COST_NAME
    from app.evaluation.methods import METHODS

    costs = {
        name: {
            method: cost
            for method, one in METHODS.items()
            if (cost := one.cost(source.costs)) is not None
        }
        for name, source in sources.items()
    }
    if not any(costs.values()):
        return
    file = folder / COST_NAME
    plain = {
        name: {method: asdict(cost) for method, cost in of_methods.items()}
        for name, of_methods in costs.items()
    }
    try:
        replace_text(file, json.dumps(plain, indent=1) + "\n")
    except OSError as exc:
        raise CommandError(f"{exc.filename} cannot be written: {exc.strerror}") from None
    for name, of_methods in costs.items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("signal")
        for heading in ("prompts", "tokens", "ms", "n"):
            table.add_column(heading, justify="right")
        for method, cost in of_methods.items():
            tokens = f"{cost.prompt_tokens:,.0f}" if cost.prompt_tokens else "-"
            cells = (f"{cost.prompts:.3g}", tokens, f"{1000 * cost.seconds:,.3g}", str(cost.pairs))
            table.add_row(METHODS[method].title, *cells)
        print_table(table, title=f"{name}: cost of a pair in this run")


def write_comparison(datasets: "Sequence[ComparedDataset]", design: "Design", folder: Path) -> None:
    """Writes comparison.html into a folder, and prints which judge to use.

    Raises:
        CommandError: The file cannot be written.
    """
    from app.evaluation.report.comparison_page import (
        judges_table,
        render_comparison,
        which_judge,
    )
    from app.evaluation.report.main_tables import nearest_alpha

    alpha, file = nearest_alpha(design.alphas), folder / "comparison.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(file, render_comparison(datasets, design, alpha=alpha))
    except OSError as exc:
        raise CommandError(f"{exc.filename} cannot be written: {exc.strerror}") from None
    for dataset in datasets:
        columns = judges_table(dataset)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column(columns.corner)
        for column in columns.columns:
            table.add_column(column.text, justify="right")
        for _, lines in columns.bodies:
            for line in lines:
                table.add_row(line.heading.text, *(cell.text for cell in line.cells))
        print_table(table, title=f"{dataset.name}: {dataset.n} pairs that all judges judged")
        say(f"{dataset.name}: {which_judge(dataset, alpha)}", output=stdout)
        say("", output=stdout)
    say(f"comparison: {file.resolve()}")


def _warn_of_low_label_mass(dataset: "DatasetResults") -> None:
    mass = dataset.label_mass
    if mass is not None and mass < LEAST_LABEL_MASS:
        say(
            ("warning:", "yellow"),
            f" {dataset.name}: the labels A and B together have a "
            f"probability of only {mass:.1e} (median) in this judge's answers, so its preferences "
            "are unreliable; try another SCOPE_PREFILL, prompt or model",
        )


def _print_quality(dataset: "DatasetResults") -> None:
    from app.evaluation.methods import METHODS

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("signal")
    for heading in ("n", "missing", "accuracy", "ECE", "AUROC", "AUPRC"):
        table.add_column(heading, justify="right")
    for row in dataset.methods:
        cells = [METHODS[row.method].title, str(row.n), str(row.unparsed + row.failed)]
        cells += ["-" if value is None else f"{value:.3f}" for value in row.quality]
        table.add_row(*cells)
    print_table(table, title=f"{dataset.name}: {dataset.n} pairs")


def print_splits(rows: "Sequence[RuleOutcome]", n: int) -> None:
    """Prints SCOPE and pac at every alpha, calibrated on one random half and tested on the other.

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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
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
    print_table(table, title=title)
