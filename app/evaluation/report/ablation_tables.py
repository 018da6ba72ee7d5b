"""The report's tables on noisy labels, calibration size, transfer, and the normal world."""

from collections.abc import Callable, Mapping, Sequence

from app.evaluation import paper
from app.evaluation.paper import PaperOutcome
from app.evaluation.protocol import CALIBRATION_SIZES, AblationRow
from app.evaluation.report.main_tables import RULES
from app.evaluation.report.table import (
    NONE,
    Cell,
    Heading,
    Line,
    Mark,
    Table,
    in_paper,
    level,
    number,
    over,
    pair,
    why_notes,
)
from app.evaluation.results import Results


def noise_table(results: Results) -> Table | None:
    """Risk and coverage by the share of flipped calibration labels.

    The paper's numbers are printed beside SCOPE without correction; the paper does not correct.
    """
    ablations = {dataset.name: dataset.label_noise for dataset in results.datasets}

    def cell(dataset: str, ablation: AblationRow) -> Cell:
        theirs = _paper_ablation(paper.label_noise, results.judge, dataset, ablation)
        beside = in_paper(pair(theirs.risk, theirs.coverage)) if theirs else ""
        ours, alpha = ablation.row.outcome, ablation.row.alpha
        return Cell(pair(ours.risk, ours.coverage), beside, over(ours.risk, alpha))

    values = sorted({row.value for rows in ablations.values() for row in rows})
    columns = tuple(Heading(f"{100 * value:g}% flipped") for value in values)
    return _ablation_table("Label noise: risk / coverage", ablations, values, columns, cell)


def size_table(results: Results) -> Table | None:
    """Coverage and risk by the number of calibration pairs."""
    ablations = {dataset.name: dataset.calibration_size for dataset in results.datasets}

    def cell(dataset: str, ablation: AblationRow) -> Cell:
        theirs = _paper_ablation(paper.calibration_size, results.judge, dataset, ablation)
        beside = in_paper(pair(theirs.coverage, theirs.risk)) if theirs else ""
        ours, alpha = ablation.row.outcome, ablation.row.alpha
        return Cell(pair(ours.coverage, ours.risk), beside, over(ours.risk, alpha))

    values = sorted(
        {row.value for rows in ablations.values() for row in rows} | {*CALIBRATION_SIZES}
    )
    columns = tuple(Heading(f"n = {value:,.0f}") for value in values)
    return _ablation_table("Calibration size: coverage / risk", ablations, values, columns, cell)


def _paper_ablation(
    find: Callable[[str | None, str, float], PaperOutcome | None],
    judge: str | None,
    dataset: str,
    ablation: AblationRow,
) -> PaperOutcome | None:
    if (ablation.row.selector, ablation.row.alpha) != ("scope", paper.ALPHA):
        return None
    return find(judge, dataset, ablation.value)


def _ablation_table(
    caption: str,
    ablations: Mapping[str, Sequence[AblationRow]],
    values: Sequence[float],
    columns: tuple[Heading, ...],
    cell: Callable[[str, AblationRow], Cell],
) -> Table | None:
    """One body for each data set, one line for each rule and alpha, one column for each value."""
    bodies = []
    for dataset, rows in ablations.items():
        cells = {(row.row.selector, row.row.alpha, row.value): cell(dataset, row) for row in rows}
        asked = dict.fromkeys((row.row.selector, row.row.alpha) for row in rows)
        missing = Cell(NONE, why="too few pairs would be left to test on")
        lines = tuple(
            Line(
                heading=Heading(f"{RULES.get(rule, rule)}, alpha {level(alpha)}"),
                cells=tuple(cells.get((rule, alpha, value), missing) for value in values),
            )
            for rule, alpha in asked
        )
        if lines:
            bodies.append((dataset, lines))
    if not bodies:
        return None
    notes = why_notes(line for _, lines in bodies for line in lines)
    return Table(
        caption=caption,
        corner="Rule",
        spanning=(),
        columns=columns,
        bodies=tuple(bodies),
        notes=notes,
    )


def transfer_table(results: Results) -> Table | None:
    """Coverage and risk; calibration data sets as rows, test data sets as columns."""
    if not results.transfer:
        return None
    cells = {}
    for entry in results.transfer:
        rule, alpha, ours = entry.row.selector, entry.row.alpha, entry.row.outcome
        is_papers = (rule, alpha) == ("scope", paper.ALPHA)
        theirs = paper.transfer(results.judge, entry.calibration, entry.test) if is_papers else None
        mark: Mark = over(ours.risk, alpha)
        if entry.calibration == entry.test:
            mark = "over within" if mark else "within"
        cells[rule, alpha, entry.calibration, entry.test] = Cell(
            pair(ours.coverage, ours.risk),
            in_paper(pair(theirs.coverage, theirs.risk)) if theirs else "",
            mark,
        )
    calibrations = dict.fromkeys(entry.calibration for entry in results.transfer)
    tests = dict.fromkeys(entry.test for entry in results.transfer)
    missing = Cell(NONE, why="not run")
    bodies = tuple(
        (
            f"{RULES.get(rule, rule)}, alpha {level(alpha)}",
            tuple(
                Line(
                    heading=Heading(calibration),
                    cells=tuple(
                        cells.get((rule, alpha, calibration, test), missing) for test in tests
                    ),
                )
                for calibration in calibrations
            ),
        )
        for rule, alpha in dict.fromkeys((rule, alpha) for rule, alpha, _, _ in cells)
    )
    columns = tuple(Heading(f"tested on {test}") for test in tests)
    note = "Italic: calibrated and tested on the two halves of one data set."
    return Table(
        caption="Transfer: coverage / risk",
        corner="Calibrated on",
        spanning=(),
        columns=columns,
        bodies=bodies,
        notes=(note,),
    )


def world_table(results: Results) -> Table | None:
    """The paper's coverage beside the coverage in the normal world."""
    if not results.normal_world:
        return None
    lines: dict[str, list[Line]] = {}
    for row in results.normal_world:
        figures = (row.accuracy, row.auroc, row.paper_coverage, row.coverage)
        difference = Cell(number(row.coverage - row.paper_coverage, signed=True))
        cells = (*(Cell(number(value)) for value in figures), difference)
        lines.setdefault(row.judge, []).append(Line(heading=Heading(row.dataset), cells=cells))
    columns = (
        Heading("Accuracy", "accuracy of BPE in the paper"),
        Heading("AUROC", "AUROC of BPE in the paper"),
        Heading("Coverage, paper", "SCOPE's coverage at alpha 0.10 in the paper"),
        Heading(
            "Coverage, normal world",
            "SCOPE's coverage at alpha 0.10 with 1,000 calibration pairs in the normal world",
        ),
        Heading("Difference", "coverage in the normal world minus the paper's"),
    )
    bodies = tuple((judge, tuple(judge_lines)) for judge, judge_lines in lines.items())
    return Table(
        caption="The normal world", corner="Data set", spanning=(), columns=columns, bodies=bodies
    )
