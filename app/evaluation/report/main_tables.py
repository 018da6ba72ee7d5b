"""The main tables of the report: quality of the uncertainty, and risk control."""

from collections.abc import Iterable, Mapping, Sequence

from app.core.assessment import AlphaRow
from app.core.calibration import GUARANTEES
from app.evaluation import paper
from app.evaluation.methods import METHODS, MethodName
from app.evaluation.metrics import Quality, RiskCoverage
from app.evaluation.protocol import RuleOutcome
from app.evaluation.report.table import (
    NONE,
    Cell,
    Heading,
    Line,
    Table,
    in_paper,
    level,
    number,
    over,
    share,
    why_notes,
)
from app.evaluation.results import DatasetResults, MethodResults, Results

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


_COVERAGE = Heading("Coverage", "mean share of the test pairs that is accepted")
_RISK = Heading("Risk", "mean over splits of errors among accepted, 0 where nothing is accepted")
_SUMS = Heading("Ratio of sums", "errors of all splits divided by accepted of all splits")
_ABOVE = Heading("Above alpha", "share of splits whose risk exceeds alpha")
_READINGS = (_COVERAGE, _RISK, _SUMS, _ABOVE)
_QUALITY = (
    Heading("Acc", "accuracy: share of verdicts that agree with the label"),
    Heading("ECE ↓", "expected calibration error over 10 bins, lower is better"),
    Heading("ROC", "area under the ROC curve: how well confidence separates right and wrong"),
    Heading("PRC", "area under the precision-recall curve (average precision)"),
)
_COUNTED = Heading("n", "pairs that the method scores")
_COUNTS = (
    Heading("unparsed", "pairs left out because an answer did not parse"),
    Heading("failed", "pairs left out because the judge failed"),
    Heading("undecided", "pairs without a preference, which count as errors"),
    Heading("answers unparsed", "single answers that did not parse; a pair may have several"),
)
_WHY_NO_QUALITY = (
    "no pair was answered",
    "no pair was answered",
    "all verdicts are right, or all wrong",
    "no verdict is right",
)


def nearest_alpha(alphas: Iterable[float]) -> float:
    """The alpha that is nearest to the paper's."""
    return min(alphas, key=lambda alpha: (abs(alpha - paper.ALPHA), alpha), default=paper.ALPHA)


def method_of(dataset: DatasetResults, name: str) -> MethodResults | None:
    """The results of a method; None if it was not measured."""
    return next((method for method in dataset.methods if method.method == name), None)


def outcome_of(rows: Iterable[RuleOutcome], selector: str, alpha: float) -> RiskCoverage | None:
    """The outcome of a rule at an alpha; None if there is no such row."""
    outcomes = (row.outcome for row in rows if (row.selector, row.alpha) == (selector, alpha))
    return next(outcomes, None)


def quality_table(results: Results) -> Table:
    """A row for each method; accuracy, ECE, AUROC and AUPRC of each data set as columns."""
    measured = {method.method for dataset in results.datasets for method in dataset.methods}
    lines = tuple(
        Line(
            heading=Heading(METHODS[name].title),
            cells=tuple(
                cell
                for dataset in results.datasets
                for cell in _quality_cells(results.judge, dataset, name)
            ),
        )
        for name in METHODS
        if name in measured
    )
    note = (
        "Each method is measured on the n pairs that it scores, as in the paper. A method with a "
        "smaller n mostly leaves out harder pairs."
    )
    return Table(
        caption="Quality of the uncertainty",
        corner="Method",
        spanning=tuple(Heading(dataset.name, spans=5) for dataset in results.datasets),
        columns=(*_QUALITY, _COUNTED) * len(results.datasets),
        bodies=(("", lines),),
        notes=(note, *why_notes(lines)),
    )


def compared_table(results: Results) -> Table:
    """The methods on the pairs that all compared methods scored, with intervals."""
    best = {dataset.name: _best(dataset.methods) for dataset in results.datasets}
    lines = tuple(
        Line(
            heading=Heading(METHODS[name].title, beside=_prompts(METHODS[name].prompts)),
            cells=tuple(
                cell
                for dataset in results.datasets
                for cell in _compared_cells(method_of(dataset, name), best[dataset.name])
            ),
        )
        for name in METHODS
        if any(
            (method := method_of(dataset, name)) and method.compared for dataset in results.datasets
        )
    )
    note = (
        "The methods are compared on the pairs that all of them score, with 95% intervals over "
        "questions. Bold is the best. A method that scores fewer than 80% of the pairs is not "
        "compared."
    )
    return Table(
        caption="Methods on the same pairs",
        corner="Method",
        spanning=tuple(
            Heading(dataset.name, spans=4, beside=_common_pairs(dataset))
            for dataset in results.datasets
        ),
        columns=_QUALITY * len(results.datasets),
        bodies=(("", lines),),
        notes=(note, *why_notes(lines)),
    )


def _prompts(number: int) -> str:
    return "1 prompt a pair" if number == 1 else f"{number} prompts a pair"


def _common_pairs(dataset: DatasetResults) -> str:
    numbers = (method.compared.n for method in dataset.methods if method.compared)
    return next((f"{n:,} pairs" for n in numbers), "")


def _best(methods: Sequence[MethodResults]) -> tuple[str, ...]:
    """The best number of each column as printed: the lowest ECE, and the highest of the others."""
    columns = zip(*(method.compared.quality for method in methods if method.compared), strict=True)
    measured = [[value for value in column if value is not None] for column in columns]
    # A column with a single number has no best one.
    return tuple(
        number(pick(column)) if len(column) > 1 else ""
        for pick, column in zip((max, min, max, max), measured, strict=True)
    ) or ("", "", "", "")


def _compared_cells(method: MethodResults | None, best: tuple[str, ...]) -> list[Cell]:
    if method is None or method.compared is None:
        why = "scores too few pairs" if method else "not measured on this data set"
        return [Cell(NONE, why=why)] * 4
    one = method.compared
    return [
        Cell(
            number(value),
            "" if interval is None else f"{number(interval[0])} to {number(interval[1])}",
            "best" if value is not None and number(value) == first else "",
            "" if value is not None else why,
        )
        for value, interval, first, why in zip(
            one.quality, one.intervals, best, _WHY_NO_QUALITY, strict=True
        )
    ]


def counts_table(results: Results) -> Table | None:
    """Pairs and answers that each method could not score; None if there are none."""
    counted = {
        (dataset.name, method.method): _counts(method)
        for dataset in results.datasets
        for method in dataset.methods
    }
    if not any(any(counts) for counts in counted.values()):
        return None
    lines = tuple(
        Line(
            heading=Heading(METHODS[name].title),
            cells=tuple(
                Cell(NONE, why="not measured on this data set")
                if count is None
                else Cell(f"{count:,}")
                for dataset in results.datasets
                for count in counted.get((dataset.name, name), (None,) * len(_COUNTS))
            ),
        )
        for name in METHODS
        if any(any(counted.get((dataset.name, name), ())) for dataset in results.datasets)
    )
    return Table(
        caption="Pairs that a method does not score",
        corner="Method",
        spanning=tuple(Heading(dataset.name, spans=len(_COUNTS)) for dataset in results.datasets),
        columns=_COUNTS * len(results.datasets),
        bodies=(("", lines),),
        notes=why_notes(lines),
    )


def _counts(method: MethodResults) -> tuple[int, int, int, int]:
    return method.unparsed, method.failed, method.undecided, method.unparsed_answers


def _quality_cells(judge: str | None, dataset: DatasetResults, name: str) -> list[Cell]:
    method = method_of(dataset, name)
    if method is None:
        return [Cell(NONE, why="not measured on this data set")] * 5
    theirs = paper.quality(judge, dataset.name, name) or Quality(
        accuracy=None, ece=None, auroc=None, auprc=None
    )
    cells = [
        Cell(
            number(value),
            in_paper(number(known)) if known is not None else "",
            why="" if value is not None else (why if method.n else "no pair was answered"),
        )
        for value, known, why in zip(method.quality, theirs, _WHY_NO_QUALITY, strict=True)
    ]
    return [*cells, Cell(f"{method.n:,}")]


def risk_table(results: Results, alpha: float) -> Table:
    """A row for each rule on the paper's signal; coverage and the readings of risk as columns."""
    lines = tuple(
        Line(
            heading=Heading(RULES[rule], beside=f"on {METHODS[signal].title}"),
            cells=tuple(
                cell
                for dataset in results.datasets
                for cell in _risk_cells(results.judge, dataset, rule, signal, alpha)
            ),
        )
        for rule, signal in SIGNALS.items()
        if any(method_of(dataset, signal) for dataset in results.datasets)
    )
    return Table(
        caption=f"Risk control at alpha = {level(alpha)}",
        corner="Rule and its signal",
        spanning=tuple(Heading(dataset.name, spans=4) for dataset in results.datasets),
        columns=_READINGS * len(results.datasets),
        bodies=(("", lines),),
        notes=why_notes(lines),
    )


def _risk_cells(
    judge: str | None, dataset: DatasetResults, rule: str, signal: str, alpha: float
) -> list[Cell]:
    method = method_of(dataset, signal)
    ours = outcome_of(method.rows, rule, alpha) if method else None
    if ours is None:
        why = "fewer than 4 pairs" if method else "not measured on this data set"
        return [Cell(NONE, why=why)] * 4
    theirs = paper.outcome(judge, dataset.name, rule, signal=signal, alpha=alpha)
    coverage, risk = (theirs.coverage, theirs.risk) if theirs else (None, None)
    return [
        Cell(number(ours.coverage), in_paper(number(coverage))),
        Cell(number(ours.risk), in_paper(number(risk)), over(ours.risk, alpha)),
        _sums_cell(ours, alpha),
        Cell(share(ours.share_above_alpha)),
    ]


def alphas_table(results: Results) -> Table | None:
    """SCOPE and pac at every alpha with standard deviations; one body for each data set."""
    bodies = []
    for dataset in results.datasets:
        method = method_of(dataset, "bpe")
        if method is None or not method.rows:
            continue
        lines = tuple(
            Line(
                heading=Heading(level(alpha)),
                cells=(
                    *_spread_cells(results.judge, dataset.name, method, "scope", alpha),
                    *_spread_cells(results.judge, dataset.name, method, "pac", alpha),
                ),
            )
            for alpha in results.design.alphas
        )
        bodies.append((f"{dataset.name}: {_halves_in_words(method.n)}", lines))
    if not bodies:
        return None
    return Table(
        caption="SCOPE and pac at every alpha, ± standard deviation",
        corner="alpha",
        spanning=(Heading("SCOPE", spans=4), Heading("pac", spans=4)),
        columns=_READINGS * 2,
        bodies=tuple(bodies),
        notes=why_notes(line for _, lines in bodies for line in lines),
    )


def _halves_in_words(n: int) -> str:
    return f"calibrated on {n // 2:,} labels, tested on the other {n - n // 2:,}"


def all_labels_table(results: Results) -> Table | None:
    """Both guarantees calibrated on all labels, as `scope-judge curve`; a body a data set."""
    bodies = []
    for dataset in results.datasets:
        method = method_of(dataset, "bpe")
        if method is None or not dataset.all_labels:
            continue
        lines = tuple(
            Line(
                heading=Heading(level(alpha)),
                cells=tuple(
                    cell
                    for guarantee in GUARANTEES
                    for row in dataset.all_labels
                    if (row.guarantee, row.alpha) == (guarantee, alpha)
                    for cell in _all_labels_cells(row)
                ),
            )
            for alpha in results.design.alphas
        )
        bodies.append((f"{dataset.name}: calibrated on all {method.n:,} labels", lines))
    if not bodies:
        return None
    return Table(
        caption="Calibrated on all labels, as by scope-judge curve",
        corner="alpha",
        spanning=(Heading("marginal (SCOPE)", spans=2), Heading("pac", spans=2)),
        columns=(
            Heading("Coverage", "share of all pairs that is accepted"),
            Heading("Empirical risk", "errors among the accepted, on the pairs calibrated on"),
        )
        * 2,
        bodies=tuple(bodies),
        notes=why_notes(line for _, lines in bodies for line in lines),
    )


def _all_labels_cells(row: AlphaRow) -> list[Cell]:
    risk = row.empirical_risk
    why = "" if risk is not None else "nothing is accepted"
    return [Cell(number(row.coverage)), Cell(number(risk), why=why)]


def rules_table(dataset: DatasetResults) -> Table | None:
    """Every rule on every signal at every alpha; one body for each signal."""
    bodies = tuple(
        (
            f"on {METHODS[method.method].title}",
            tuple(
                Line(
                    heading=Heading(
                        f"{RULES.get(row.selector, row.selector)}, alpha {level(row.alpha)}"
                    ),
                    cells=tuple(_outcome_cells(row.outcome, row.alpha)),
                )
                for row in method.rows
            ),
        )
        for method in dataset.methods
        if method.rows
    )
    return (
        Table(caption=dataset.name, corner="Rule", spanning=(), columns=_READINGS, bodies=bodies)
        if bodies
        else None
    )


def _spread_cells(
    judge: str | None, dataset: str, method: MethodResults, rule: str, alpha: float
) -> list[Cell]:
    ours = outcome_of(method.rows, rule, alpha)
    if ours is None:
        return [Cell(NONE, why="not among the rules that ran")] * 4
    theirs = paper.outcome(judge, dataset, rule, signal="bpe", alpha=alpha)
    coverage, risk, *others = _outcome_cells(ours, alpha)
    if theirs:
        coverage = coverage._replace(beside=in_paper(_spread(theirs.coverage, theirs.coverage_std)))
        risk = risk._replace(beside=in_paper(_spread(theirs.risk, theirs.risk_std)))
    return [coverage, risk, *others]


def _outcome_cells(ours: RiskCoverage, alpha: float) -> list[Cell]:
    return [
        Cell(_spread(ours.coverage, ours.coverage_std)),
        Cell(_spread(ours.risk, ours.risk_std), mark=over(ours.risk, alpha)),
        _sums_cell(ours, alpha),
        Cell(share(ours.share_above_alpha)),
    ]


def _sums_cell(ours: RiskCoverage, alpha: float) -> Cell:
    if ours.ratio_of_sums is None:
        return Cell(NONE, why="no split accepts anything")
    return Cell(number(ours.ratio_of_sums), mark=over(ours.ratio_of_sums, alpha))


def _spread(mean: float | None, std: float | None) -> str:
    return number(mean) if std is None else f"{number(mean)} ± {number(std)}"
