"""The promise of "pac" for judges that only vote: tied shares, at 8 and 16 votes in each order."""

import numpy as np
import pytest
from scipy.special import expit

from app.core.pac import pac_threshold
from app.core.preference import FloatArray, Score, preference_from_gaps
from app.judges.votes import Votes, score_of_votes

ALPHA = DELTA = 0.1
RUNS, N = 300, 1000


def _scores(votes: int, rng: np.random.Generator) -> dict[tuple[int, int, int], float]:
    """Uncertainty of each pair of shares, and of each of 64 values of the hash."""
    found = {}
    for forward in range(votes + 1):
        for reverse in range(votes + 1):
            for tie in range(64):
                score = score_of_votes(
                    Votes(forward, votes - forward, votes),
                    Votes(votes - reverse, reverse, votes),
                    tie=tie / 64,
                )
                assert isinstance(score, Score)
                fwd, rev = (np.array([gap]) for gap in score.gaps)
                found[forward, reverse, tie] = float(preference_from_gaps(fwd, rev).entropy[0])
    return found


@pytest.mark.parametrize("votes", [8, 16])
@pytest.mark.parametrize("sharpness", [0.7, 2.0])
def test_pac_keeps_its_promise_with_tied_votes(votes: int, sharpness: float) -> None:
    rng = np.random.default_rng(7)
    table = np.zeros((votes + 1, votes + 1, 64))
    for (forward, reverse, tie), entropy in _scores(votes, rng).items():
        table[forward, reverse, tie] = entropy

    def drawn(n: int) -> tuple[FloatArray, FloatArray]:
        """Uncertainties and errors; response A is better, and the judge favors a place a little."""
        gap = rng.normal(1.2, 1.0, n) * sharpness
        bias = rng.normal(0.3, 0.2, n)
        forward = rng.binomial(votes, expit(gap + bias))
        reverse = rng.binomial(votes, expit(gap - bias))
        share = forward + reverse
        return table[forward, reverse, rng.integers(0, 64, n)], share <= votes

    traffic, wrong = drawn(300_000)
    over, coverage = 0, []
    for _ in range(RUNS):
        threshold = pac_threshold(*drawn(N), alpha=ALPHA, delta=DELTA)
        accepted = (traffic <= threshold) & (traffic < np.log(2.0))
        coverage.append(accepted.mean())
        over += bool(accepted.any()) and wrong[accepted].mean() > ALPHA
    # Three standard errors above delta.
    assert over / RUNS <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / RUNS)
    assert np.mean(coverage) > 0.3
    print(votes, sharpness, over / RUNS, np.mean(coverage), (traffic == 0).mean())
