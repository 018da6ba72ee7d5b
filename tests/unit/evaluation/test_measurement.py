"""The numbers of the report: by hand, in the normal world, and as JSON."""

import math
from pathlib import Path

import numpy as np
import pytest

from app.core.errors import InvalidRequestError
from app.core.preference import preference_from_gaps
from app.evaluation.judgments.jsonl import Judged
from app.evaluation.judgments.record import JudgedPair
from app.evaluation.measurement import JudgedDataset, measure, sources_of
from app.evaluation.protocol import (
    Design,
    ablate_calibration_size,
    ablate_label_noise,
    run_protocol,
    transfer,
)
from app.evaluation.results import MethodResults, Results
from app.evaluation.selectors import Points
from app.files.checking import LabelReport
from tests.statistics.worlds.normal import NormalJudge

QUICK = Design(seed=1, splits=4, ablation_splits=3)


def logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)


def pair(i: int, p: float, label: str = "A") -> JudgedPair:
    """A pair on which the judge prefers response_a with probability p in both orders."""
    assert label in ("A", "B")
    gaps = (logit(p), logit(p)) if p != 0.5 else (0.0, 0.0)
    return JudgedPair(
        dataset="d",
        id=str(i),
        group="g",
        label="A" if label == "A" else "B",
        judge="j",
        gaps=gaps,
    )


def method(results: Results, name: str) -> MethodResults:
    (found,) = (m for m in results.datasets[0].methods if m.method == name)
    return found


def test_quality_and_reliability_by_hand() -> None:
    # Confidence 0.95: 3 right, 1 wrong; 0.75: 1 right, 1 wrong; 0.5: no preference, an error.
    pairs = [pair(i, 0.95) for i in range(3)] + [pair(3, 0.05)]
    pairs += [pair(4, 0.75), pair(5, 0.25), pair(6, 0.5)]
    found = method(measure("j", {"d": JudgedDataset(pairs=pairs)}, QUICK), "bpe")
    assert (found.n, found.undecided, found.unparsed, found.failed) == (7, 1, 0, 0)
    assert found.quality.accuracy == pytest.approx(4 / 7)
    # (4 |0.75 - 0.95| + 2 |0.5 - 0.75| + 1 |0 - 0.5|) / 7.
    assert found.quality.ece == pytest.approx((0.8 + 0.5 + 0.5) / 7)
    assert [(b.count, b.accuracy) for b in found.reliability] == [(1, 0.0), (2, 0.5), (4, 0.75)]
    assert [b.confidence for b in found.reliability] == pytest.approx([0.5, 0.75, 0.95])


def simulated(accuracy: float, auroc: float, n: int, seed: int) -> list[JudgedPair]:
    """Judged pairs with the uncertainty order and the errors of the normal world."""
    uncertainty, wrong = NormalJudge(accuracy=accuracy, auroc=auroc).draw(
        n, np.random.default_rng(seed)
    )
    share = 0.5 + 0.499 * (1.0 - uncertainty / math.log(2.0))
    return [
        pair(i, float(p), "B" if bad else "A")
        for i, (p, bad) in enumerate(zip(share, wrong, strict=True))
    ]


def points_of(pairs: list[JudgedPair]) -> Points:
    """The points of BPE, computed without `methods`."""
    gaps = np.array([pair.gaps for pair in pairs], dtype=np.float64)
    found = preference_from_gaps(gaps[:, 0], gaps[:, 1])
    label_a = np.array([pair.label == "A" for pair in pairs])
    return Points.of(found.entropy, np.where(label_a, found.p_bar <= 0.5, found.p_bar >= 0.5))


def test_rows_ablations_and_transfer_come_from_the_protocol_on_bpe() -> None:
    pairs = {"easy": simulated(0.9, 0.8, 320, seed=1), "hard": simulated(0.7, 0.7, 150, seed=2)}
    sources = {name: JudgedDataset(pairs=each) for name, each in pairs.items()}
    results = measure(None, {**sources, "tiny": JudgedDataset(pairs=pairs["easy"][:3])}, QUICK)
    points = {name: points_of(each) for name, each in pairs.items()}
    for dataset in results.datasets[:2]:
        assert dataset.methods[-1].rows == run_protocol(points[dataset.name], QUICK)
        assert dataset.label_noise == ablate_label_noise(points[dataset.name], QUICK)
        assert dataset.calibration_size == ablate_calibration_size(points[dataset.name], QUICK)
    # A data set of three pairs has a quality, but no rows, and is not part of transfer.
    tiny = results.datasets[2]
    assert tiny.methods[-1].quality.accuracy is not None
    assert tiny.methods[-1].rows == ()
    assert tiny.label_noise == tiny.calibration_size == ()
    assert results.transfer == transfer(points, QUICK)


def test_a_file_is_split_into_data_sets_and_drawn_from() -> None:
    pairs = [pair(i, 0.9) for i in range(30)]
    other = [
        JudgedPair(dataset="", id=str(i), group=None, label="A", judge="j", gaps=(1.0, 1.0))
        for i in range(5)
    ]
    judged = Judged(
        pairs=(*pairs, *other),
        places=tuple(map(str, range(35))),
        report=LabelReport(usable=35, ties=4, unlabelled=2),
        judges=frozenset({"j"}),
    )
    judge, found = sources_of(judged, Path("x/mine.jsonl.gz"), at_most=20, seed=1)
    assert judge == "j"
    assert [(name, len(source.pairs)) for name, source in found.items()] == [("d", 20), ("mine", 5)]
    assert (found["d"].ties, found["d"].left_out) == (4, {"no label": 2})
    assert (found["mine"].ties, found["mine"].left_out) == (0, {})
    again = sources_of(judged, Path("x/mine.jsonl.gz"), at_most=20, seed=2)[1]
    assert again["d"].pairs != found["d"].pairs


def test_a_file_without_a_judged_pair_is_refused() -> None:
    none = Judged(pairs=(), places=(), report=LabelReport(), judges=frozenset())
    with pytest.raises(InvalidRequestError, match="no labeled pair that was judged"):
        sources_of(none, Path("x"), at_most=9, seed=1)
