"""Seeded simulations of the false alarms of the service about drift.

All three values of each judgment are tested together.
"""

import math
from array import array
from typing import NamedTuple

import numpy as np
import pytest

from app.audits.drift import STREAMS, Martingales, stream_figures
from app.core.calibration import Calibration
from app.core.preference import FloatArray, preference_from_gaps
from tests.labeled_examples import calibration_of, labeled_example
from tests.statistics.worlds.calibrations import MIDDLING
from tests.statistics.worlds.ties import alarm_rate

# Judgments of a block; large ones are faster.
STEP = 500


class Mixture(NamedTuple):
    """Families of pairs that are equally frequent; each has normal gaps with its own width."""

    widths: tuple[float, ...] = (6.0,) * 8 + (0.9,) * 2

    def gaps(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Shape (count, 2). Logit gaps of both orders, which differ by a normal position bias."""
        widths = np.asarray(self.widths)[rng.integers(0, len(self.widths), count)]
        gap = widths * rng.standard_normal(count)
        return gap[:, np.newaxis] + 0.3 * rng.standard_normal((count, 2))

    def calibration(self, rng: np.random.Generator, n: int) -> Calibration:
        """A calibration on labeled pairs of the mixture."""
        rows = self.gaps(rng, n).tolist()
        examples = {
            str(i): labeled_example(gaps[0], gaps[1], float(rng.uniform(0.9, 1.0)), "A")
            for i, gaps in enumerate(rows)
        }
        return calibration_of(examples)


def is_alarmed(tests: Martingales, rng: np.random.Generator, gaps: FloatArray) -> bool:
    """Whether any stream has an alarm at some time while pairs with these gaps are judged."""
    found = preference_from_gaps(gaps[:, 0], gaps[:, 1])
    columns = (found.entropy, np.abs(found.p_fwd - found.p_rev), rng.uniform(0.9, 1.0, len(gaps)))
    table = np.stack(columns, axis=1)
    for begin in range(0, len(gaps), STEP):
        tests.add(array("d", table[begin : begin + STEP].ravel()), rng)
    return any(stream_figures(tests.largest[name]).alarm for name in STREAMS)


EASY_AND_HARD = Mixture()


@pytest.mark.parametrize("n", [50, pytest.param(300, marks=pytest.mark.long), 3000])
def test_traffic_like_the_pairs_rarely_raises_an_alarm(n: int) -> None:
    # 10,000 judgments in each run. The promise is 5% forever, over all streams.
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(40):
        tests = Martingales(EASY_AND_HARD.calibration(rng, n))
        alarms += is_alarmed(tests, rng, EASY_AND_HARD.gaps(rng, 10_000))
    assert alarms <= 4


@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize(("share", "least"), [(0.12, 0.2), (0.19, 0.8)])
def test_a_set_without_the_ties_of_the_traffic_raises_false_alarms(
    share: float, least: float, runs: int
) -> None:
    # Ties are likelier where the judge is unsure.
    rates = [
        alarm_rate(MIDDLING, share, runs, keeps_ties=keeps, judged=10_000, seed=12)
        for keeps in (False, True)
    ]
    assert rates[0] >= least
    assert rates[1] <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / runs)
