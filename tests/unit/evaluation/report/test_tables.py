"""The tables of the report have our numbers and the paper's, and its figures are drawn."""

from collections.abc import Sequence
from pathlib import Path

from app.evaluation.methods import METHODS, MethodName
from app.evaluation.metrics import Quality, RiskCoverage
from app.evaluation.protocol import AblationRow, Design, RuleOutcome, TransferRow
from app.evaluation.report.figures import write_figures
from app.evaluation.report.table import Cell, Table
from app.evaluation.report.tables import tables_of
from app.evaluation.results import DatasetResults, MethodResults, ReliabilityBin, Results
from app.evaluation.selectors import SELECTORS

QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
DESIGN = Design(seed=7, splits=1000, ablation_splits=500, alphas=(0.05, 0.10), delta=0.10)


def outcome(coverage: float, risk: float, ratio: float | None) -> RiskCoverage:
    return RiskCoverage(
        coverage=coverage,
        coverage_std=0.061,
        risk=risk,
        risk_std=0.023,
        ratio_of_sums=ratio,
        share_above_alpha=0.456,
        splits=1000,
    )


def rule(name: str, alpha: float, found: RiskCoverage) -> RuleOutcome:
    return RuleOutcome(selector=name, alpha=alpha, outcome=found)


def method(name: MethodName, quality: Quality) -> MethodResults:
    """A method whose rules have coverage 0.30 and risk 0.08 at alpha 0.10."""
    rows = [
        rule(selector, alpha, outcome(3 * alpha, 0.8 * alpha, 0.9 * alpha))
        for selector in SELECTORS
        for alpha in DESIGN.alphas
    ]
    return MethodResults(
        method=name,
        n=1995,
        unparsed=0,
        failed=5,
        unparsed_answers=0,
        undecided=0,
        quality=quality,
        reliability=(
            ReliabilityBin(place=5, confidence=0.57, accuracy=0.6, count=200),
            ReliabilityBin(place=9, confidence=0.95, accuracy=0.8, count=1795),
        ),
        rows=tuple(rows),
    )


def dataset(name: str) -> DatasetResults:
    signals: list[tuple[MethodName, Quality]] = [
        ("predictive_probability", Quality(0.7301, 0.2312, 0.6523, 0.8234)),
        ("bpe", Quality(0.7412, 0.1434, 0.6845, None)),
    ]
    return DatasetResults(
        name=name,
        n=2000,
        ties=412,
        left_out={"blank response": 3},
        groups=80,
        label_mass=0.9876,
        methods=tuple(method(*each) for each in signals),
        label_noise=(
            AblationRow(value=0.05, row=rule("scope", 0.10, outcome(0.061, 0.047, 0.05))),
        ),
        calibration_size=(
            AblationRow(value=200, row=rule("scope", 0.10, outcome(0.231, 0.083, 0.09))),
        ),
    )


def results(*names: str) -> Results:
    transferred = [
        TransferRow(calibration=a, test=b, row=rule("scope", 0.10, outcome(0.4, 0.1, None)))
        for a in names
        for b in names
    ]
    return Results(
        judge=QWEN_7B,
        version="9.8.7",
        design=DESIGN,
        datasets=tuple(map(dataset, names)),
        transfer=tuple(transferred),
    )


def table(name: str, *datasets: str) -> Table:
    (found,) = (each for each in tables_of(results(*datasets)) if each.name == name)
    return found


def row(found: Table, *begin: Cell) -> Sequence[Cell]:
    """The cells after these first ones."""
    (rest,) = (cells[len(begin) :] for cells in found.rows if cells[: len(begin)] == begin)
    return rest


def test_quality_has_the_papers_figures_beside_ours() -> None:
    ours = (0.7412, 0.1434, 0.6845, None, 1995)
    assert row(table("quality", "mt-bench"), "mt-bench", "BPE") == (
        *ours,
        *(0.738, 0.143, 0.685, 0.855),
    )
    assert row(table("quality", "mine"), "mine", "BPE") == (*ours, None, None, None, None)


def test_risk_has_each_rule_on_the_papers_signal_with_the_papers_figures() -> None:
    found = table("risk", "mt-bench")
    ours = (0.30000000000000004, 0.061, 0.08000000000000002, 0.023, 0.09000000000000001, 0.456)
    assert row(found, "mt-bench", "BPE", "SCOPE", "0.10") == (*ours, 0.246, 0.097)
    signal = METHODS["predictive_probability"].title
    assert row(found, "mt-bench", signal, "Naive", "0.10") == (*ours, 0.102, 0.116)
    assert row(found, "mt-bench", "BPE", "pac", "0.10") == (*ours, None, None)
    assert len(found.rows) == 5
    assert len(table("rules", "mt-bench").rows) == 2 * len(SELECTORS) * len(DESIGN.alphas)


def test_ablations_and_transfer_have_the_papers_figures() -> None:
    noisy = row(table("label-noise", "mt-bench"), "mt-bench", "0.05", "SCOPE", "0.10")
    sized = row(table("calibration-size", "mt-bench"), "mt-bench", "200", "SCOPE", "0.10")
    assert (noisy[0], sized[0]) == (0.061, 0.231)
    assert len(table("transfer", "mt-bench", "reward-bench").rows) == 4


def test_the_figures_are_drawn_for_each_data_set(tmp_path: Path) -> None:
    found = results("mt-bench", "mine")
    write_figures(found.judge, found.datasets, tmp_path / "figures")
    files = sorted((tmp_path / "figures").iterdir())
    assert [file.name for file in files] == [
        "1-alpha.png",
        "1-reliability.png",
        "2-alpha.png",
        "2-reliability.png",
    ]
    assert all(file.stat().st_size > 10_000 for file in files)
