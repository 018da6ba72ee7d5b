"""The results of `scope-judge evaluate`: results.json, report.md, and tables on stdout."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from app.cli.console import CommandError, print_table, say, stdout
from app.files.replacing import replace_text
from app.judges.label_logits import LEAST_LABEL_MASS

# Most modules of app.evaluation need libraries of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.protocol import RuleOutcome
    from app.evaluation.report.table import Table as EvaluationTable
    from app.evaluation.results import DatasetResults, Results

# The rules behind the two guarantees of the service.
_RULES = {"scope": "marginal (scope)", "pac": "pac"}


def write_results(results: "Results", folder: Path) -> None:
    """Writes results.json, report.md, tables/ and figures/ into a folder, and prints the tables."""
    from app.evaluation.report.figures import write_figures
    from app.evaluation.report.tables import tables_of
    from app.evaluation.results import to_json

    report, tables = folder / "report.md", tables_of(results)
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        replace_text(folder / "results.json", to_json(results))
        for table in tables:
            replace_text(folder / "tables" / f"{table.name}.csv", table.csv())
        write_figures(results.judge, results.datasets, folder / "figures")
        replace_text(report, _report(results, tables))
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
        _print_splits(bpe.rows, bpe.n)
    say(f"report: {report.resolve()}")


def _report(results: "Results", tables: "Sequence[EvaluationTable]") -> str:
    from app.evaluation.paper import source
    from app.evaluation.report.table import as_text

    design = results.design
    facts = [
        f"- Judge: {as_text(results.judge or 'not named in the judgments')}",
        *(f"- Data: {as_text(each.name)}, {each.n:,} labeled pairs" for each in results.datasets),
        f"- Splits: {design.splits:,}, {design.ablation_splits:,} for the ablations; seed "
        f"{design.seed}; delta of pac {design.delta:g}; scope-judge {results.version}",
        f"- Protocol and the numbers called paper: {source()}",
        "- Figures: `figures/`, numbered as the data above. Tables as CSV: `tables/`.",
    ]
    return "\n\n".join(["# Evaluation", "\n".join(facts), *(t.markdown() for t in tables)]) + "\n"


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


def _print_splits(rows: "Sequence[RuleOutcome]", n: int) -> None:
    """Prints SCOPE and pac at every alpha, calibrated on random halves and tested on the others."""
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
