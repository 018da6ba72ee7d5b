"""Traffic with ties, which people find more often where the judge is unsure."""

from array import array

import numpy as np
from numpy.typing import NDArray

from app.audits.drift import Martingales, stream_figures
from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Label
from app.core.preference import FloatArray, Score
from tests.labeled_examples import calibration_of
from tests.statistics.worlds.normal import NormalJudge

_BLOCK = 500
_GRID = np.linspace(0.0, 60.0, 60_001)


def _gap(uncertainty: FloatArray) -> FloatArray:
    """Logit gaps whose entropy is this uncertainty, by interpolation."""
    p = 1.0 / (1.0 + np.exp(-_GRID))
    q = 1.0 - p
    entropy = -(p * np.log(p) + q * np.log(np.maximum(q, 1e-300)))
    gaps: FloatArray = np.interp(-uncertainty, -entropy, _GRID)
    return gaps


def tied(uncertainty: FloatArray, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether people find each pair equal: more often the less sure the judge is."""
    equal: NDArray[np.bool_] = rng.random(len(uncertainty)) < (
        share * uncertainty / uncertainty.mean()
    )
    return equal


def calibration(
    judge: NormalJudge, n: int, share: float, rng: np.random.Generator, *, keeps_ties: bool
) -> Calibration:
    """A set of pairs of the traffic, with or without those that people found equal."""
    uncertainty, wrong = judge.draw(n, rng)
    gaps = _gap(uncertainty)
    examples: dict[str, LabeledExample] = {}
    for i, is_tie in enumerate(tied(uncertainty, share, rng)):
        if is_tie and not keeps_ties:
            continue
        label: Label = "tie" if is_tie else "B" if wrong[i] else "A"
        score = Score(gap_fwd=float(gaps[i]), gap_rev=float(gaps[i]), label_mass=None)
        examples[f"{i}"] = LabeledExample(score=score, label=label)
    return calibration_of(examples)


def alarm_rate(
    judge: NormalJudge, share: float, runs: int, *, keeps_ties: bool, judged: int, seed: int
) -> float:
    """Share of runs in which drift alarms although the traffic is that of the set."""
    rng, alarms = np.random.default_rng(seed), 0
    for _ in range(runs):
        tests = Martingales(calibration(judge, 1000, share, rng, keeps_ties=keeps_ties))
        for _ in range(judged // _BLOCK):
            uncertainty, _ = judge.draw(_BLOCK, rng)
            rows = np.stack([uncertainty, np.zeros(_BLOCK), np.full(_BLOCK, np.nan)], axis=1)
            tests.add(array("d", rows.ravel()), rng)
        figures = [stream_figures(each, shares=2) for each in tests.largest.values()]
        alarms += any(each.alarm for each in figures)
    return alarms / runs
