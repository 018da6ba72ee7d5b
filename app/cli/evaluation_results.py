"""The results of `scope-judge evaluate`: results.json, report.html, and tables on stdout."""

from collections.abc import Mapping, Sequence
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
    from app.evaluation.methods import MethodName, PairCost
    from app.evaluation.protocol import Design, RuleOutcome
    from app.evaluation.results import DatasetResults, Results

# The rules behind the two guarantees of the service.
_RULES = {"scope": "marginal (scope)", "pac": "pac"}


def write_results(results: "Results", sources: "Mapping[str, JudgedDataset]", folder: Path) -> None:
    """Writes results.json, report.html and cost.json into a folder, and prints the tables.

    cost.json keeps what earlier runs of the folder measured and this one did not. So a run that
    asks the judge nothing has the same report as the run before.

    Raises:
        CommandError: A file cannot be written.
        InvalidRequestError: cost.json was not written by evaluate.
    """
    from app.evaluation import costs
    from app.evaluation.judgments.ownership import RESULTS_NAME
    from app.evaluation.report.page import write_report
    from app.evaluation.results import to_json

    report, spent = folder / "report.html", costs.costs_of(sources)
    known = costs.updated(costs.read_costs(folder), spent)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(spent.values()):
            replace_text(folder / costs.COST_NAME, costs.to_json(known))
        replace_text(folder / RESULTS_NAME, to_json(results))
        write_report(results, known, report)
    except OSError as exc:
        raise CommandError(f"{exc.filename} cannot be written: {exc.strerror}") from None
    # The tables are the result, so they go to stdout.
    for dataset in results.datasets:
        _warn_of_low_label_mass(dataset)
        _print_quality(dataset)
        _print_costs(dataset.name, spent[dataset.name])
        bpe = next((each for each in dataset.methods if each.method == "bpe"), None)
        if bpe is None or not bpe.rows:
            say("too few pairs to calibrate on one half", output=stdout)
            say("", output=stdout)
            continue
        print_splits(bpe.rows, bpe.n)
        print_alphas(dataset.all_labels, bpe.n)
    say(f"report: {report.resolve()}")


def _print_costs(name: str, costs: "Mapping[MethodName, PairCost]") -> None:
    """Prints what a pair has cost by each method in this run; nothing if it asked nothing."""
    from app.evaluation.methods import METHODS
    from app.evaluation.report.table import milliseconds

    if not costs:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("signal")
    for heading in ("prompts", "tokens read", "written", "ms", "n"):
        table.add_column(heading, justify="right")
    for method, cost in costs.items():
        tokens = [f"{n:,.0f}" if n else "-" for n in (cost.prompt_tokens, cost.written_tokens)]
        ms = milliseconds(cost.seconds)
        table.add_row(METHODS[method].title, f"{cost.prompts:.3g}", *tokens, ms, str(cost.pairs))
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
