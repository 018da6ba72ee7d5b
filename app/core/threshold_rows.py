"""The threshold of one alpha, and its effect on labeled pairs."""

import math
from dataclasses import replace

from app.core.assessment import share_interval
from app.core.comparison import Guarantee
from app.core.pac import pac_tests, rounded_down
from app.core.thresholds import ThresholdCurve
from scope_judge.records import Threshold


def row_of(
    threshold: float,
    *,
    alpha: float,
    guarantee: Guarantee,
    delta: float | None,
    accepted: int,
    errors: int,
    n: int,
) -> Threshold:
    """Returns the row of a threshold in nats, which accepts so many of n pairs with such errors."""
    feasible = threshold > -math.inf
    return Threshold(
        alpha=alpha,
        guarantee=guarantee,
        delta=delta,
        threshold=threshold if feasible else None,
        coverage=accepted / n if n else 0.0,
        empirical_risk=errors / accepted if accepted else None,
        feasible=feasible,
        labels_missing=False,
        tie_share=None,
        tie_interval=None,
    )


def with_ties(row: Threshold, *, ties: int, sided: int) -> Threshold:
    """Adds the share of ties among the pairs with a label that the threshold accepts."""
    labeled = ties + sided
    if not labeled:
        return row
    share = ties / labeled
    return replace(row, tie_share=share, tie_interval=share_interval(share, labeled))


def threshold_on(
    curve: ThresholdCurve, alpha: float, guarantee: Guarantee, delta: float | None
) -> float:
    """Returns lambda_hat in nats on the curve of pairs that all have labels."""
    if guarantee == "marginal":
        return curve.threshold(alpha)
    assert delta is not None, "pac needs a delta"
    tests = pac_tests(
        curve.scores,
        curve.accepted,
        curve.errors,
        alpha=rounded_down(alpha),
        delta=rounded_down(delta),
        label_noise=curve.label_noise,
    )
    assert tests.threshold is not None, "every pair has a label"
    return tests.threshold
