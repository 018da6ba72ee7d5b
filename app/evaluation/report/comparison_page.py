"""The comparison of several judges as one HTML page without scripts and external resources."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.evaluation.comparison import ComparedDataset, ComparedJudge
from app.evaluation.protocol import Design
from app.evaluation.report import figures
from app.evaluation.report.main_tables import outcome_of
from app.evaluation.report.page import Plot, rendered
from app.evaluation.report.table import (
    NONE,
    Cell,
    Heading,
    Line,
    Table,
    level,
    milliseconds,
    number,
    over,
    why_notes,
)

_GUARANTEES = {"scope": "marginal (SCOPE)", "pac": "pac"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One data set of the page."""

    dataset: str
    n: int
    answers: tuple[str, ...]
    judges: Table
    alphas: Table
    plots: tuple[Plot, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonPage:
    """The values that the template shows."""

    alpha: str
    delta: str
    splits: int
    sections: tuple[Section, ...]


def render_comparison(datasets: Sequence[ComparedDataset], design: Design, *, alpha: float) -> str:
    """The page as HTML; names from users are escaped.

    Args:
        datasets: The compared judges.
        design: Splits, alphas and delta.
        alpha: The alpha of the answer.
    """
    page = ComparisonPage(
        alpha=level(alpha),
        delta=level(design.delta),
        splits=design.splits,
        sections=tuple(
            _section(dataset, design, alpha, f"judges {place}")
            for place, dataset in enumerate(datasets)
        ),
    )
    return rendered("comparison.html.j2", page)


def which_judge(dataset: ComparedDataset, alpha: float) -> str:
    """One sentence for each guarantee: the judge that answers most at an alpha, and how much."""
    return " ".join(_answers(dataset, alpha))


def _answers(dataset: ComparedDataset, alpha: float) -> tuple[str, ...]:
    return tuple(_most_answers(dataset, rule, alpha, title) for rule, title in _GUARANTEES.items())


def _most_answers(dataset: ComparedDataset, rule: str, alpha: float, title: str) -> str:
    coverages = {
        judge.name: outcome.coverage
        for judge in dataset.judges
        if (outcome := outcome_of(judge.rows, rule, alpha)) is not None
    }
    best = max(coverages, key=lambda name: coverages[name])
    if coverages[best] == 0.0:
        return f"No judge has a verdict at alpha {level(alpha)} under {title}."
    others = ", ".join(
        f"{name} {coverage:.1%}" for name, coverage in coverages.items() if name != best
    )
    return (
        f"At alpha {level(alpha)} under {title}, {best} has the most verdicts: "
        f"{coverages[best]:.1%} of the pairs ({others})."
    )


def _section(dataset: ComparedDataset, design: Design, alpha: float, key: str) -> Section:
    curves = [
        sorted((row for row in judge.rows if row.selector == "scope"), key=lambda row: row.alpha)
        for judge in dataset.judges
    ]
    risk = figures.judges_figure(curves, "risk", key=f"{key} risk")
    coverage = figures.judges_figure(curves, "coverage", key=f"{key} coverage")
    return Section(
        dataset=dataset.name,
        n=dataset.n,
        answers=_answers(dataset, alpha),
        judges=judges_table(dataset),
        alphas=alphas_table(dataset, design),
        plots=(
            Plot(svg=risk, shows="Risk by alpha"),
            Plot(svg=coverage, shows="Coverage by alpha"),
        ),
    )


def judges_table(dataset: ComparedDataset) -> Table:
    """Accuracy and AUROC with intervals, and the cost of a pair; a row for each judge."""
    lines = tuple(
        Line(heading=_named(place, judge), cells=(*_quality_cells(judge), *_cost_cells(judge)))
        for place, judge in enumerate(dataset.judges)
    )
    return Table(
        caption=f"Which judge to use: {dataset.n:,} pairs that all of them judged",
        corner="Judge",
        spanning=(),
        columns=(
            Heading("Acc", "accuracy of BPE, with its 95% interval over questions"),
            Heading("ECE ↓", "expected calibration error over 10 bins, lower is better"),
            Heading("AUROC", "how well the confidence separates right and wrong"),
            Heading("AUPRC", "average precision of the confidence"),
            Heading("Prompts", "prompts per pair for BPE"),
            Heading("Tokens", "tokens of these prompts"),
            Heading("ms", "milliseconds per pair, with many pairs at once"),
        ),
        bodies=(("", lines),),
        notes=("Below a figure is its 95% interval over questions.", *why_notes(lines)),
    )


def _named(place: int, judge: ComparedJudge) -> Heading:
    return Heading(judge.name, beside=f"judge {place + 1}")


def _quality_cells(judge: ComparedJudge) -> list[Cell]:
    return [
        Cell(
            number(value),
            "" if interval is None else f"{number(interval[0])} to {number(interval[1])}",
            why="" if value is not None else "all verdicts are right, or all wrong",
        )
        for value, interval in zip(judge.quality.quality, judge.quality.intervals, strict=True)
    ]


def _cost_cells(judge: ComparedJudge) -> list[Cell]:
    cost = judge.cost
    if cost is None:
        return [Cell(NONE, why="its folder has no cost.json")] * 3
    tokens = Cell(f"{cost.prompt_tokens:,.0f}")
    if not cost.prompt_tokens:
        tokens = Cell(NONE, why="the judge counts no tokens")
    return [Cell(f"{cost.prompts:.3g}"), tokens, Cell(milliseconds(cost.seconds))]


def alphas_table(dataset: ComparedDataset, design: Design) -> Table:
    """Coverage and risk at every alpha under both guarantees; a row for each judge and rule."""
    bodies = tuple(
        (
            _GUARANTEES[rule],
            tuple(
                Line(
                    heading=_named(place, judge),
                    cells=tuple(
                        cell
                        for alpha in design.alphas
                        for cell in _outcome_cells(judge, rule, alpha)
                    ),
                )
                for place, judge in enumerate(dataset.judges)
            ),
        )
        for rule in _GUARANTEES
    )
    return Table(
        caption="Coverage and risk at every alpha",
        corner="Judge",
        spanning=tuple(Heading(f"alpha {level(alpha)}", spans=2) for alpha in design.alphas),
        columns=(
            Heading("Coverage", "mean share of the test pairs that is accepted"),
            Heading("Risk", "errors of all splits divided by accepted of all splits"),
        )
        * len(design.alphas),
        bodies=bodies,
        notes=why_notes(line for _, lines in bodies for line in lines),
    )


def _outcome_cells(judge: ComparedJudge, rule: str, alpha: float) -> list[Cell]:
    outcome = outcome_of(judge.rows, rule, alpha)
    assert outcome is not None
    ratio = outcome.ratio_of_sums
    if ratio is None:
        return [Cell(number(outcome.coverage)), Cell(NONE, why="no split accepts anything")]
    return [Cell(number(outcome.coverage)), Cell(number(ratio), mark=over(ratio, alpha))]
