"""The draws of the bootstrap: Poisson, independent, and the same among any other units."""

import numpy as np
import pytest
from numpy.typing import NDArray

from app.ratings import bootstrap
from app.ratings.bootstrap import draws

KEYS = np.arange(400, dtype=np.uint64)


def drawn(keys: NDArray[np.uint64], *, rounds: int = 500, seed: int = 0) -> NDArray[np.float64]:
    return np.concatenate(list(draws(keys, rounds=rounds, seed=seed)))


def test_the_numbers_of_draws_are_poisson_with_the_mean_1() -> None:
    counts = drawn(KEYS)
    share = np.bincount(counts.astype(int).ravel(), minlength=4)[:4] / counts.size
    # 200,000 numbers: a standard error of a share is at most 0.0011.
    np.testing.assert_allclose(share, np.exp(-1.0) / np.array([1, 1, 2, 6]), atol=0.005)


@pytest.mark.parametrize("rows", [True, False])
def test_units_and_rounds_are_independent(rows: bool) -> None:
    counts = drawn(KEYS)
    correlation = np.corrcoef(counts, rowvar=rows)
    away = correlation[~np.eye(len(correlation), dtype=bool)]
    observed = 400 if rows else 500
    assert away.std() == pytest.approx(observed**-0.5, rel=0.05)
    assert abs(away.mean()) < 0.001


def test_a_unit_is_drawn_alike_among_other_units_in_other_blocks_and_in_longer_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = drawn(KEYS)
    monkeypatch.setattr(bootstrap, "_BLOCK", 1000)
    np.testing.assert_array_equal(drawn(KEYS[::-3]), counts[:, ::-3])
    np.testing.assert_array_equal(drawn(KEYS, rounds=20), counts[:20])
