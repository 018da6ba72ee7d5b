"""The number of labels after which a new calibration has verdicts, fixed before any is seen."""

from app.core.comparison import Criterion
from app.core.examples import MOST_PAIRS
from app.core.start_rank import good_marginal_rank, good_start_rank, points_for_good_start


def labels_for_verdicts(criterion: Criterion) -> int | None:
    """Returns the number of labels with which a criterion accepts something with probability 0.8.

    That holds if the judge is wrong in at most 0.6 alpha of its most certain pairs: of the share
    2.5 alpha of them, at most half. `pac` then starts its tests at the rank with power 0.8. The
    number depends on no label, so calibrating after exactly so many labels keeps the promise.

    Args:
        criterion: It has an alpha.

    Returns:
        The number; None if a set has no room for so many.
    """
    alpha = criterion.alpha
    assert alpha is not None, "a criterion without alpha needs no labels"
    if criterion.guarantee == "pac":
        assert criterion.delta is not None, "pac needs a delta"
        rank = good_start_rank(alpha, criterion.delta, 0.0, at_most=MOST_PAIRS)
    else:
        rank = good_marginal_rank(alpha, 0.0, at_most=MOST_PAIRS)
    labels = None if rank is None else points_for_good_start(alpha, rank)
    return labels if labels is not None and labels <= MOST_PAIRS else None
