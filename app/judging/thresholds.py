"""Finds thresholds; new ones of "pac" are computed in a thread."""

from collections.abc import Mapping

from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.errors import LabelsMissingError
from app.off_loop import off_loop

# A threshold in nats, or the reason why a set has none yet.
Threshold = float | LabelsMissingError


async def find_thresholds(asked: Mapping[Criterion, Calibration]) -> dict[Criterion, Threshold]:
    """Finds the thresholds of criteria with an alpha.

    Each threshold of "pac" is its own turn in the threads, so that others get theirs in
    between. Callers can ask for any number of different alphas. A calibration keeps its thresholds:
    whoever gets the turn after another caller with the same criterion finds the threshold there.

    Args:
        asked: Criterion -> the calibration of its set.

    Returns:
        The threshold of each criterion, in nats; -inf if infeasible. An error in its place if the
        set lacks labels for it.
    """
    return {criterion: await _threshold(criterion, each) for criterion, each in asked.items()}


async def _threshold(criterion: Criterion, calibration: Calibration) -> Threshold:
    assert criterion.alpha is not None, "without an alpha there is no threshold"
    key = criterion.alpha, criterion.guarantee, criterion.delta
    kept = calibration.kept_threshold(*key)
    if kept is not None:
        return kept
    try:
        if criterion.guarantee == "marginal":
            # A look-up in the calibration's curve.
            return calibration.threshold(*key)
        return await off_loop(calibration.threshold, *key)
    except LabelsMissingError as exc:
        return exc
