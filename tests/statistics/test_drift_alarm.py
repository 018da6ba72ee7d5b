"""Seeded simulations of the service's alarm about drift: false alarms, and how soon it rings.

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

# Judgments between two looks; large blocks are faster.
STEP, LARGE_STEP = 10, 500


class Mixture(NamedTuple):
    """Families of pairs that are equally frequent; each has normal gaps with its own width.

    A threshold that leaves out 12% of the ten families leaves out 38% of the last two.
    """

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


def judged_before_an_alarm(
    tests: Martingales, rng: np.random.Generator, gaps: FloatArray, *, step: int = STEP
) -> float:
    """Number of judgments with these gaps until any stream has an alarm; infinite without one."""
    found = preference_from_gaps(gaps[:, 0], gaps[:, 1])
    columns = (found.entropy, np.abs(found.p_fwd - found.p_rev), rng.uniform(0.9, 1.0, len(gaps)))
    table = np.stack(columns, axis=1)
    for done in range(step, len(gaps) + 1, step):
        tests.add(array("d", table[done - step : done].ravel()), rng)
        if any(stream_figures(tests.largest[name]).alarm for name in STREAMS):
            return done
    return math.inf


EASY_AND_HARD = Mixture()
HARD = Mixture(EASY_AND_HARD.widths[-2:])
EASIER = Mixture((12.0,))


@pytest.mark.parametrize("n", [50, pytest.param(300, marks=pytest.mark.long), 3000])
def test_traffic_like_the_pairs_rarely_raises_an_alarm(n: int) -> None:
    # 10,000 judgments in each run. The promise is 5% forever, over all streams.
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(40):
        tests = Martingales(EASY_AND_HARD.calibration(rng, n))
        gaps = EASY_AND_HARD.gaps(rng, 10_000)
        alarms += judged_before_an_alarm(tests, rng, gaps, step=LARGE_STEP) < math.inf
    assert alarms <= 4


def first_alarms(mixture: Mixture, *, before: int, runs: int = 60) -> list[float]:
    """Judgments of a mixture before an alarm, after some like the labeled pairs; sorted."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(runs):
        tests = Martingales(EASY_AND_HARD.calibration(rng, 300))
        judged_before_an_alarm(tests, rng, EASY_AND_HARD.gaps(rng, before), step=LARGE_STEP)
        found.append(judged_before_an_alarm(tests, rng, mixture.gaps(rng, 3000)))
    return sorted(found)


def test_the_hard_families_alone_are_seen_within_a_few_dozen_judgments() -> None:
    from_the_start = first_alarms(HARD, before=0)
    assert from_the_start[len(from_the_start) // 2] <= 50
    after_others = first_alarms(HARD, before=1000)
    assert after_others[len(after_others) // 2] <= 100
    assert after_others[-1] <= 200


def test_easier_traffic_is_drift_too() -> None:
    assert first_alarms(EASIER, before=0)[-1] <= 600


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
