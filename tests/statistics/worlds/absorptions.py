"""Absorptions after an alarm: what becomes of the next threshold."""

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Guarantee
from app.core.monitoring import monitor
from app.core.pac import pac_threshold
from app.core.preference import FloatArray
from app.core.thresholds import ThresholdCurve
from tests.statistics.worlds.normal import NormalJudge

ALPHA = DELTA = 0.1
# Labels of the set, audits before the change of the traffic, and the longest wait for the alarm.
SET, BEFORE, LONGEST = 1000, 300, 8000
Way = Literal["everything", "set kept", "chosen start", "first audits"]
Pairs = tuple[FloatArray, NDArray[np.bool_]]


def threshold_of(*parts: Pairs, guarantee: Guarantee = "pac", alpha: float = ALPHA) -> float:
    """The threshold of all pairs together."""
    uncertainty, wrong = (np.concatenate(each) for each in zip(*parts, strict=True))
    if guarantee == "pac":
        return pac_threshold(uncertainty, wrong, alpha=alpha, delta=DELTA)
    return ThresholdCurve.fit(uncertainty, wrong).threshold(alpha)


def next_threshold(
    before: NormalJudge,
    after: NormalJudge,
    way: Way,
    audits: int,
    rng: np.random.Generator,
    *,
    guarantee: Guarantee = "pac",
) -> float | None:
    """The threshold after an absorption; None without an alarm.

    Args:
        before, after: The judge on the traffic before and after its change.
        way: "first audits": the first ones since the alarm replace all examples. "set kept": they
            are added. "everything": all audits are added. "chosen start": of 20 starts, the one
            with the largest threshold, for all audits from there on in place of all examples.
        audits: Number of audits since the alarm.
    """
    threshold = partial(threshold_of, guarantee=guarantee)
    old = before.draw(SET, rng)
    parts = before.draw(BEFORE, rng), after.draw(LONGEST, rng)
    uncertainty, wrong = (np.concatenate(each) for each in zip(*parts, strict=True))
    accepted = np.flatnonzero(uncertainty <= threshold(old))
    rang = monitor(wrong[accepted], alpha=ALPHA).alarm_at
    if rang is None:
        return None
    # Each draw after the one whose label rang, accepted or not.
    alarm = int(accepted[rang - 1]) + 1
    end = alarm + audits

    def absorbed(start: int) -> Pairs:
        return uncertainty[start:end], wrong[start:end]

    match way:
        case "everything":
            return threshold(old, absorbed(0))
        case "set kept":
            return threshold(old, absorbed(alarm))
        case "chosen start":
            starts = np.linspace(0, end - 100, 20).astype(int).tolist()
            return max(threshold(absorbed(start)) for start in starts)
        case "first audits":
            return threshold(absorbed(alarm))


def over(
    before: NormalJudge, after: NormalJudge, way: Way, audits: int, runs: int, *, seed: int
) -> tuple[float, float]:
    """Share of absorptions whose true error exceeds alpha, and mean true coverage."""
    rng = np.random.default_rng(seed)
    found = [next_threshold(before, after, way, audits, rng) for _ in range(runs)]
    coverage, error = after.truth(np.array([each for each in found if each is not None]))
    return float((error > ALPHA).mean()), float(coverage.mean())
