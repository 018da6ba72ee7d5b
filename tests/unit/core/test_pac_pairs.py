"""Labels asked lazily give the threshold that all labels give."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.pac import PacPairs, pac_threshold, rank_sequence
from app.core.preference import LN2, FloatArray
from tests.statistics.worlds.normal import NormalJudge

Errors = NDArray[np.bool_]


def lazily(
    uncertainty: FloatArray, error: Errors, *, alpha: float, delta: float
) -> tuple[float, int]:
    """Labels only the pairs that are asked for; returns the threshold and the number of labels."""
    labeled = np.zeros(len(error), dtype=bool)
    while True:
        # Nothing that has no label may reach the tests.
        seen = error & labeled
        pairs = PacPairs.fit(uncertainty, seen, labeled)
        threshold, places = pairs.needed(alpha, delta)
        if threshold is not None:
            return threshold, int(labeled.sum())
        assert len(places)
        assert not labeled[places].any()
        assert (np.diff(uncertainty[places]) >= 0).all()
        labeled[places] = True


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=60),
    st.sampled_from([0.1, 0.3, 0.5]),
    st.sampled_from([0.1, 0.4]),
)
def test_any_labels_give_the_threshold_of_all_labels_or_none(
    points: list[tuple[int, bool, bool]], alpha: float, delta: float
) -> None:
    uncertainty = np.array([score / 20 for score, _, _ in points])
    error = np.array([wrong for _, wrong, _ in points], dtype=bool)
    labeled = np.array([known for _, _, known in points], dtype=bool)
    pairs = PacPairs.fit(uncertainty, error & labeled, labeled)
    threshold, places = pairs.needed(alpha, delta)
    if threshold is None:
        assert len(places)
        assert not labeled[places].any()
    else:
        assert not len(places)
        assert threshold == pac_threshold(uncertainty, error, alpha=alpha, delta=delta)


def test_everything_is_accepted_only_once_everything_is_labeled() -> None:
    uncertainty, right = np.linspace(0.0, 0.6, 300), np.zeros(300, dtype=bool)
    labeled = np.ones(300, dtype=bool)
    assert PacPairs.fit(uncertainty, right, labeled).needed(0.1, 0.1)[0] == LN2
    labeled[299] = False
    threshold, places = PacPairs.fit(uncertainty, right, labeled).needed(0.1, 0.1)
    assert (threshold, places.tolist()) == (None, [299])


def test_the_first_test_that_fails_ends_the_labeling() -> None:
    start = rank_sequence(0.1, 0.1, 0.0, 1000)[0]
    uncertainty, wrong = np.linspace(0.0, 0.6, 1000), np.ones(1000, dtype=bool)
    assert lazily(uncertainty, wrong, alpha=0.1, delta=0.1) == (-math.inf, start)


def test_ties_take_pairs_out_and_move_no_rank_below_the_last() -> None:
    ranks = rank_sequence(0.1, 0.1, 0.0, 1000)
    uncertainty, error = NormalJudge(accuracy=0.874, auroc=0.809).draw(
        950, np.random.default_rng(5)
    )
    pairs = PacPairs.fit(uncertainty, error, np.ones(950, dtype=bool), drawn=1000)
    labeled = np.zeros(950, dtype=bool)
    reached = []
    while True:
        lazy = PacPairs.fit(uncertainty, error & labeled, labeled, drawn=1000)
        threshold, places = lazy.needed(0.1, 0.1)
        if threshold is not None:
            break
        labeled[places] = True
        reached.append(int(labeled.sum()))
    assert threshold == pairs.needed(0.1, 0.1)[0]
    expected = [rank for rank in ranks if rank < 950] + [950]
    assert reached == expected[: len(reached)]
