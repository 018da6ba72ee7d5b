"""The promise where people flip labels, more often the less certain the judge is."""

import numpy as np
import pytest

from app.core.noise import LabelNoiseBounds
from app.core.pac import pac_threshold
from app.evaluation.normal_world import NormalJudge
from app.service.labelling.pairs import drawn
from app.service.labelling.second_labels import surest
from tests.statistics.worlds.calibrations import MIDDLING, STRONG
from tests.statistics.worlds.label_noise import WORLDS, Flips

ALPHA = DELTA = 0.1
N = 1000
DIGESTS = [f"{number:04d}" for number in range(N)]


def calibrations(
    judge: NormalJudge, flips: Flips, *, count: int, pairs: int = 100
) -> dict[str, tuple[float, float]]:
    """Coverage and share of calibrations over alpha, by what the label noise is said to be."""
    rng = np.random.default_rng(11)
    thresholds: dict[str, list[float]] = {}
    for number in range(count):
        uncertainty, wrong = judge.draw(N, rng)
        noise = flips(uncertainty)
        first, second = (rng.random(N) < noise for _ in range(2))
        sure = surest(dict(zip(DIGESTS, uncertainty.tolist(), strict=True)))
        chosen = [int(each) for each in drawn(sure, most=pairs, seed=number)]
        found = LabelNoiseBounds.of(int((first != second)[chosen].sum()), pairs)
        share = (first != second)[chosen].mean()
        said = {
            "nothing": 0.0,
            "mean": float(noise.mean()),
            "point": 0.5 * (1.0 - np.sqrt(max(0.0, 1.0 - 2.0 * share))),
            "low": found.low,
            "high": found.high,
        }
        for name, label_noise in said.items():
            threshold = pac_threshold(
                uncertainty,
                wrong != first,
                alpha=ALPHA,
                delta=DELTA,
                label_noise=min(label_noise, 0.49),
            )
            thresholds.setdefault(name, []).append(threshold)
    figures = {}
    for name, values in thresholds.items():
        coverage, error = judge.truth(np.array(values))
        figures[name] = (float(coverage.mean()), float((error > ALPHA).mean()))
    return figures


# Calibrations, and two standard errors of a share of 0.10 among so many.
FEW, MANY = (60, 0.08), (1000, 0.02)
CASES = [pytest.param(name, *FEW) for name in ("even", "rising")]
CASES += [pytest.param(name, *MANY, marks=pytest.mark.long) for name in WORLDS]


@pytest.mark.parametrize("judge", [MIDDLING, STRONG], ids=["middling", "strong"])
@pytest.mark.parametrize(("name", "count", "slack"), CASES)
def test_the_lower_bound_keeps_the_promise_and_gives_more_than_no_correction(
    name: str, count: int, slack: float, judge: NormalJudge
) -> None:
    found = calibrations(judge, WORLDS[name], count=count)
    assert found["low"][1] <= DELTA + slack
    assert found["low"][0] >= found["nothing"][0]
    if name in ("even", "rising"):
        assert found["low"][0] > found["nothing"][0] + 0.02


def test_the_mean_noise_breaks_the_promise_where_people_err_on_hard_pairs() -> None:
    assert calibrations(MIDDLING, WORLDS["rising"], count=60)["mean"][1] > 0.5


def test_the_upper_bound_breaks_the_promise_where_people_err_evenly() -> None:
    assert calibrations(MIDDLING, WORLDS["even"], count=60)["high"][1] > 0.5
