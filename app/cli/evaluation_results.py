"""The results of `scope-judge evaluate`: results.json, report.md, and tables on stdout."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.console import CommandError, say, stdout
from app.files.replacing import replace_text
from app.judges.label_logits import LEAST_LABEL_MASS

# Most modules of app.evaluation need libraries of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.report.tables import Table
    from app.evaluation.results import DatasetResults, Results

# Tables of the report that are printed, too.
_SHOWN = ("quality", "risk")


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
    for dataset in results.datasets:
        _warn_of_low_label_mass(dataset)
    # The tables are the result, so they go to stdout.
    for table in tables:
        if table.name in _SHOWN:
            for line in [*table.markdown().splitlines(), ""]:
                stdout.print(line, soft_wrap=True)
    say(f"report: {report.resolve()}")


def _report(results: "Results", tables: "Sequence[Table]") -> str:
    from app.evaluation.paper import source
    from app.evaluation.report.tables import as_text

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
