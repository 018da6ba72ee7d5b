"""Noise and resolution of a judge, from hand-made scores."""

import math

import pytest

from app.core.noise import Noise, Resolution
from app.core.preference import LN2, Score


def score(gap_fwd: float, gap_rev: float) -> Score:
    return Score(gap_fwd=gap_fwd, gap_rev=gap_rev, label_mass=1.0)


def test_equal_runs_have_no_noise() -> None:
    run = [score(1.0, 2.0), score(-3.0, 0.5)]
    noise = Noise.of([run, run, run], threshold=LN2)
    assert (noise.pairs, noise.largest, noise.p95, noise.flips) == (2, 0.0, 0.0, 0)
    assert noise.warning is None


def test_differences_are_those_from_the_first_run() -> None:
    runs = [[score(1.0, 2.0)], [score(1.25, 2.0)], [score(1.0, 1.0)]]
    noise = Noise.of(runs, threshold=LN2)
    # |0.25|, |0|, |0|, |-1|: sorted 0, 0, 0.25, 1; rank 0.95 * 3 = 2.85 lies 0.85 of the way from
    # 0.25 to 1.
    assert noise.largest == 1.0
    assert noise.p95 == pytest.approx(0.25 + 0.85 * 0.75)


def test_a_pair_flips_if_it_is_accepted_in_one_run_only_or_with_another_verdict() -> None:
    first = [score(4.0, 4.0), score(0.1, 0.1), score(2.0, 2.0), score(-2.0, -2.0)]
    # Changes its side; stays undecided with another side; becomes uncertain; stays.
    second = [score(-4.0, -4.0), score(-0.1, -0.1), score(0.1, 0.1), score(-2.1, -2.1)]
    # A gap of 2 has an uncertainty of 0.365 nats, a gap of 0.1 one of 0.692.
    noise = Noise.of([first, second], threshold=0.5)
    assert (noise.flips, noise.flip_share) == (2, 0.5)
    assert noise.warning is not None
    assert "2 of 4" in noise.warning


def test_without_a_threshold_half_of_the_first_run_is_accepted() -> None:
    run = [score(gap, gap) for gap in (1.0, 2.0, 3.0)]
    p = 1.0 / (1.0 + math.exp(-2.0))
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert Noise.of([run, run], threshold=None).threshold == pytest.approx(entropy)


def test_equal_gaps_are_counted_once_and_reported() -> None:
    distinct = Resolution.of([score(0.1 * i, 0.1 * i + 0.05) for i in range(1, 51)])
    assert (distinct.prompts, distinct.distinct, distinct.warning) == (100, 100, None)
    tied = Resolution.of([score(i // 4, i // 4 + 0.5) for i in range(50)])
    assert (tied.prompts, tied.distinct) == (100, 26)
    assert tied.warning is not None
    assert "only 26 different scores" in tied.warning
