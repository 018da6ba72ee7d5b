"""Tests that thresholds of "pac" are computed once."""

import pytest

from app.core.comparison import Criterion
from app.core.pac_pairs import PacPairs
from app.judging.judge import find_threshold
from tests.labeled_examples import calibration_of, labeled_example


def pac(alpha: float) -> Criterion:
    return Criterion(alpha=alpha, guarantee="pac", delta=0.1, calibration="default")


async def test_a_threshold_is_kept_for_all_later_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = list[float]()
    tests = PacPairs.tests

    def counted(pairs: PacPairs, alpha: float, delta: float) -> object:
        computed.append(alpha)
        return tests(pairs, alpha, delta)

    monkeypatch.setattr(PacPairs, "tests", counted)
    known = calibration_of(
        {str(i): labeled_example(i / 100, i / 100, 1.0, "A") for i in range(200)}
    )
    threshold = await find_threshold(pac(0.2), known)
    # The second alpha rounds to the same value.
    for alpha in (0.2, 0.20004):
        assert await find_threshold(pac(alpha), known) == threshold
    assert computed == [0.2]
