"""The tables of the report have our numbers and the paper's, and its figures are drawn."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.evaluation.measurement import JudgedDataset, measure
from app.evaluation.methods import METHODS
from app.evaluation.protocol import Design
from app.evaluation.report.figures import write_figures
from app.evaluation.report.tables import Cell, Table, tables_of
from app.evaluation.results import Results
from app.evaluation.selectors import SELECTORS
from tests.unit.evaluation.test_measurement import simulated

QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
DESIGN = Design(seed=7, splits=4, ablation_splits=3, alphas=(0.05, 0.10))


@pytest.fixture(scope="module")
def results() -> Results:
    """A judge of the paper on one of the paper's data sets, on another one, and on own pairs."""
    names = ("mt-bench", "reward-bench", "mine")
    pairs = {name: simulated(0.85, 0.8, 300, seed) for seed, name in enumerate(names)}
    return measure(QWEN_7B, {n: JudgedDataset(pairs=each) for n, each in pairs.items()}, DESIGN)


def table(results: Results, name: str) -> Table:
    (found,) = (each for each in tables_of(results) if each.name == name)
    return found


def row(found: Table, *begin: Cell) -> Sequence[Cell]:
    """The cells after these first ones."""
    (rest,) = (cells[len(begin) :] for cells in found.rows if cells[: len(begin)] == begin)
    return rest


def test_quality_has_the_papers_figures_beside_ours(results: Results) -> None:
    found = table(results, "quality")
    for dataset, theirs in (("mt-bench", (0.738, 0.143, 0.685, 0.855)), ("mine", (None,) * 4)):
        (measured,) = (each for each in results.datasets if each.name == dataset)
        (bpe,) = (each for each in measured.methods if each.method == "bpe")
        assert row(found, dataset, "BPE") == (*bpe.quality, 300, *theirs)


def test_risk_has_each_rule_on_the_papers_signal_with_the_papers_figures(results: Results) -> None:
    found = table(results, "risk")
    signal = METHODS["predictive_probability"].title
    assert row(found, "mt-bench", "BPE", "SCOPE", "0.10")[-2:] == (0.246, 0.097)
    assert row(found, "mt-bench", signal, "Naive", "0.10")[-2:] == (0.102, 0.116)
    assert row(found, "mt-bench", "BPE", "pac", "0.10")[-2:] == (None, None)
    (scope,) = (
        each.outcome
        for each in results.datasets[0].methods[-1].rows
        if (each.selector, each.alpha) == ("scope", 0.10)
    )
    ours = row(found, "mt-bench", "BPE", "SCOPE", "0.10")
    assert ours[:4] == (scope.coverage, scope.coverage_std, scope.risk, scope.risk_std)
    assert len(found.rows) == 3 * 5
    # Three of the methods need no further answers.
    assert len(table(results, "rules").rows) == 3 * 3 * len(SELECTORS) * len(DESIGN.alphas)


def test_ablations_and_transfer_have_the_papers_figures(results: Results) -> None:
    noisy = row(table(results, "label-noise"), "mt-bench", "0.05", "SCOPE", "0.10")
    assert noisy[0] == results.datasets[0].label_noise[3].row.outcome.coverage
    assert noisy[-2:] == (0.059, 0.046)
    moved = table(results, "transfer")
    assert row(moved, "mt-bench", "reward-bench", "SCOPE", "0.10")[-1] is not None
    assert row(moved, "mt-bench", "mine", "SCOPE", "0.10")[-2:] == (None, None)
    assert len(moved.rows) == 9


def test_the_figures_are_drawn_for_each_data_set(results: Results, tmp_path: Path) -> None:
    write_figures(results.judge, results.datasets[:1], tmp_path / "figures")
    files = sorted((tmp_path / "figures").iterdir())
    assert [file.name for file in files] == ["1-alpha.png", "1-reliability.png"]
    assert all(file.stat().st_size > 10_000 for file in files)
