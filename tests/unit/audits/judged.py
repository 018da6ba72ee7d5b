"""Judges scripted pairs, whose gap is normal."""

import itertools

import numpy as np

from app.core.calibration import Calibration
from app.core.comparison import Case
from app.judging.services import Services
from scope_judge.records import Judgment
from tests.serving import labelled, pair, request

fresh = itertools.count()
# Widths of the gaps of ordinary pairs, and of pairs on which the judge is less sure.
ORDINARY, UNSURE = 3.0, 1.0


async def calibrate(services: Services, *, n: int = 400, seed: int = 1) -> Calibration:
    """Makes the set `default` of ordinary pairs."""
    gaps = np.random.default_rng(seed).normal(0.0, ORDINARY, n).tolist()
    examples = [labelled(gap, "A" if gap > 0 else "B", number=next(fresh)) for gap in gaps]
    return (await services.calibrator.add("default", examples)).calibration


async def judge(
    services: Services, count: int, *, width: float = ORDINARY, seed: int = 2
) -> list[Judgment]:
    """Judges new pairs of different questions with gaps of a width."""
    gaps = np.random.default_rng(seed).normal(0.0, width, count).tolist()
    found = await services.judge.judge_batch(
        [request(pair(gap, 0.0, question=f"Judged {next(fresh)}?")) for gap in gaps]
    )
    return [each.judgment for each in found if isinstance(each, Case)]
