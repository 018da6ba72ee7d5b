"""The paper's tables of our results, with the paper's numbers beside ours where it has them."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass

from app.core.printable import printable_line
from app.evaluation import paper
from app.evaluation.methods import METHODS, MethodName
from app.evaluation.metrics import RiskCoverage
from app.evaluation.paper import PaperOutcome
from app.evaluation.protocol import RuleOutcome
from app.evaluation.results import DatasetResults, MethodResults, Results

NONE = "\N{EN DASH}"

# A missing number is None. CSV has numbers with 6 significant digits, Markdown with 3 decimals.
Cell = str | int | float | None

# Titles of the rules, in the order of the paper's table.
RULES: Mapping[str, str] = {
    "vanilla": "Vanilla",
    "heuristic": "Heuristic",
    "naive": "Naive",
    "trust_or_escalate": "Trust-or-Escalate",
    "scope": "SCOPE",
    "pac": "pac",
    "scope_corrected": "SCOPE, noise known",
    "pac_corrected": "pac, noise known",
}
# The uncertainty method of each rule, as in the paper; pac uses that of SCOPE.
SIGNALS: Mapping[str, MethodName] = {**paper.SIGNALS, "pac": "bpe"}

_QUALITY = ("Acc", "ECE", "ROC", "PRC")
_OUTCOME = ("coverage", "coverage sd", "risk", "risk sd", "ratio of sums", "above alpha")
_PAPER = ("paper coverage", "paper risk")
_RULE_COLUMNS = ("data", "signal", "rule", "alpha", *_OUTCOME, *_PAPER)
_READINGS = (
    "Coverage is the mean share of the test pairs that is accepted, and risk the mean over splits "
    "of errors among the accepted, 0 where nothing is accepted. The ratio of sums divides the "
    "errors of all splits by the accepted of all splits. The last share is that of the splits "
    "whose risk exceeds alpha."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table with one row of headings.

    Args:
        name: Name of its CSV file.
        title: Title of the table.
        columns: Headings.
        rows: As many cells in each row.
        note: Meaning of the columns; "" if the headings say it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """The table below its title."""
        lines = [self.columns, ("---",) * len(self.columns)]
        lines += [tuple(_in_markdown(cell) for cell in row) for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, [f"## {self.title}", table, self.note]))

    def csv(self) -> str:
        """The table with a row of headings."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_in_csv(cell) for cell in row] for row in self.rows)
        return file.getvalue()


def number(value: float | None) -> str:
    """Three decimals, never "-0.000"; a dash for a missing number."""
    return NONE if value is None else f"{round(value, 3) + 0.0:.3f}"


def level(alpha: float) -> str:
    """An alpha or a share with two decimals, or with more if it has more."""
    return f"{alpha:.2f}" if round(alpha, 2) == alpha else f"{alpha:g}"


def as_text(name: str) -> str:
    """A name of a data set or a judge, which may hold anything, as text in Markdown."""
    shown = printable_line(name).replace("\\", "\\\\").replace("|", "\\|")
    return shown.replace("&", "&amp;").replace("<", "&lt;")


def _in_markdown(cell: Cell) -> str:
    return as_text(str(cell)) if isinstance(cell, str | int) else number(cell)


def _in_csv(cell: Cell) -> str | int:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return "" if cell is None else cell


def nearest_alpha(alphas: Iterable[float]) -> float:
    """The alpha that is nearest to the paper's."""
    return min(alphas, key=lambda alpha: (abs(alpha - paper.ALPHA), alpha), default=paper.ALPHA)


def method_of(dataset: DatasetResults, name: str) -> MethodResults | None:
    """The results of a method; None if it was not measured."""
    return next((method for method in dataset.methods if method.method == name), None)


def tables_of(results: Results) -> list[Table]:
    """All tables that have a row."""
    made = (
        _quality(results),
        _counts(results),
        _risk(results),
        _every_rule(results),
        _ablation(results, "label-noise"),
        _ablation(results, "calibration-size"),
        _transfer(results),
    )
    return [table for table in made if table.rows]


def _measured(results: Results) -> Iterator[tuple[DatasetResults, MethodResults]]:
    for dataset in results.datasets:
        for method in dataset.methods:
            yield dataset, method


def _quality(results: Results) -> Table:
    rows = []
    for dataset, method in _measured(results):
        theirs = paper.quality(results.judge, dataset.name, method.method) or (None,) * 4
        title = METHODS[method.method].title
        rows.append((dataset.name, title, *method.quality, method.n, *theirs))
    return Table(
        name="quality",
        title="Quality of the uncertainty",
        columns=("data", "method", *_QUALITY, "n", *(f"paper {each}" for each in _QUALITY)),
        rows=tuple(rows),
        note="Each method is measured on the n pairs that it scores, as in the paper. A method "
        "with a smaller n mostly leaves out harder pairs.",
    )


def _counts(results: Results) -> Table:
    counted = [
        (
            dataset.name,
            METHODS[method.method].title,
            method.unparsed,
            method.failed,
            method.undecided,
        )
        for dataset, method in _measured(results)
    ]
    return Table(
        name="counts",
        title="Pairs that a method does not score",
        columns=("data", "method", "unparsed", "failed", "undecided"),
        rows=tuple(row for row in counted if any(row[2:])),
        note="Undecided pairs have no preference, and count as errors.",
    )


def _risk(results: Results) -> Table:
    alpha = nearest_alpha(results.design.alphas)
    rows = tuple(
        _rule_cells(results.judge, dataset.name, method.method, row)
        for dataset, method in _measured(results)
        for row in method.rows
        if row.alpha == alpha and SIGNALS[row.selector] == method.method
    )
    return Table(
        name="risk",
        title=f"Risk control at alpha {level(alpha)}, each rule on the paper's signal",
        columns=_RULE_COLUMNS,
        rows=rows,
        note=_READINGS,
    )


def _every_rule(results: Results) -> Table:
    rows = tuple(
        _rule_cells(results.judge, dataset.name, method.method, row)
        for dataset, method in _measured(results)
        for row in method.rows
    )
    return Table(
        name="rules",
        title="Every rule on every signal at every alpha",
        columns=_RULE_COLUMNS,
        rows=rows,
        note=_READINGS,
    )


def _rule_cells(
    judge: str | None, dataset: str, signal: MethodName, row: RuleOutcome
) -> tuple[Cell, ...]:
    theirs = paper.outcome(judge, dataset, row.selector, signal=signal, alpha=row.alpha)
    names = (dataset, METHODS[signal].title, RULES[row.selector], level(row.alpha))
    return (*names, *_cells_beside(row.outcome, theirs))


def _cells_beside(ours: RiskCoverage, theirs: PaperOutcome | None) -> tuple[Cell, ...]:
    """Our outcome without its number of splits, and the paper's."""
    return (*astuple(ours)[:-1], *(theirs or (None, None)))


def _ablation(results: Results, name: str) -> Table:
    is_noise = name == "label-noise"
    find = paper.label_noise if is_noise else paper.calibration_size
    rows = []
    for dataset in results.datasets:
        for ablation in dataset.label_noise if is_noise else dataset.calibration_size:
            row = ablation.row
            is_papers = (row.selector, row.alpha) == ("scope", paper.ALPHA)
            theirs = find(results.judge, dataset.name, ablation.value) if is_papers else None
            value = level(ablation.value) if is_noise else f"{ablation.value:g}"
            names = (dataset.name, value, RULES[row.selector], level(row.alpha))
            rows.append((*names, *_cells_beside(row.outcome, theirs)))
    return Table(
        name=name,
        title="Label noise" if is_noise else "Calibration size",
        columns=("data", "flipped" if is_noise else "pairs", "rule", "alpha", *_OUTCOME, *_PAPER),
        rows=tuple(rows),
        note="The paper does not correct for noise. A rule with the noise known does."
        if is_noise
        else "A size that would leave too few pairs to test on is missing.",
    )


def _transfer(results: Results) -> Table:
    rows = []
    for entry in results.transfer:
        row = entry.row
        is_papers = (row.selector, row.alpha) == ("scope", paper.ALPHA)
        theirs = paper.transfer(results.judge, entry.calibration, entry.test) if is_papers else None
        names = (entry.calibration, entry.test, RULES[row.selector], level(row.alpha))
        rows.append((*names, *_cells_beside(row.outcome, theirs)))
    return Table(
        name="transfer",
        title="Transfer between data sets",
        columns=("calibrated on", "tested on", "rule", "alpha", *_OUTCOME, *_PAPER),
        rows=tuple(rows),
        note="A row with one data set twice is calibrated and tested on its two halves.",
    )
