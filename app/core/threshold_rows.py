"""The threshold of one alpha, its effect, and a point of the risk-coverage curve."""

from dataclasses import dataclass

import numpy as np

from app.core.assessment import share_interval
from app.core.cascade import Chosen
from app.core.comparison import Guarantee
from app.core.pac import pac_threshold_of_counts, rounded_down
from app.core.thresholds import ThresholdCurve


@dataclass(frozen=True, kw_only=True, slots=True)
class ThresholdRow:
    """The threshold of one alpha under one guarantee, and its effect on the calibration set.

    Args:
        alpha: Largest share of errors among accepted verdicts, in (0, 1).
        guarantee: "marginal" or "pac".
        delta: In (0, 1) for "pac"; None for "marginal".
        threshold: lambda_hat in nats; -inf if infeasible.
        coverage: Accepted share of the calibration set, in [0, 1].
        empirical_risk: Observed share of errors among the accepted examples; None if no example is
            accepted.
        labels_missing: Whether the set lacks labels that the threshold depends on. It accepts
            nothing then, with the threshold -inf.
        accepted_ties: Number of the pairs of the set that the threshold accepts and people found
            equal.
        accepted_sided: Number of those of which people prefer one side.
        chosen: The thresholds of both judges of a cascade, of which `threshold` is the large one's.

    The row of "pac" is about the pairs that "pac" counts, which may be one pair a question.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    threshold: float
    coverage: float
    empirical_risk: float | None
    labels_missing: bool = False
    accepted_ties: int = 0
    accepted_sided: int = 0
    chosen: Chosen | None = None

    @classmethod
    def of(
        cls,
        curve: ThresholdCurve,
        threshold: float,
        *,
        alpha: float,
        guarantee: Guarantee,
        delta: float | None,
        undecided: int,
        off_task: int = 0,
    ) -> "ThresholdRow":
        """Computes the row of a threshold in nats, on the curve and the off-task examples."""
        n = curve.n + off_task
        accepted, errors = curve.accepted_at(threshold, undecided=undecided)
        return cls(
            alpha=alpha,
            guarantee=guarantee,
            delta=delta,
            threshold=threshold,
            coverage=accepted / n if n else 0.0,
            empirical_risk=errors / accepted if accepted else None,
        )

    @property
    def tie_share(self) -> float | None:
        """Share of ties among the accepted pairs with a label; None if there are none."""
        labeled = self.accepted_ties + self.accepted_sided
        return self.accepted_ties / labeled if labeled else None

    @property
    def tie_interval(self) -> tuple[float, float] | None:
        """The 95% interval of `tie_share`."""
        share = self.tie_share
        labeled = self.accepted_ties + self.accepted_sided
        return None if share is None else share_interval(share, labeled)

    @property
    def feasible(self) -> bool:
        """Whether any judgment can be accepted at this alpha with the present labels."""
        return self.threshold > -np.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One point of the risk-coverage curve of a calibration set.

    Args:
        uncertainty: Threshold in nats.
        coverage: Accepted share of the set, in [0, 1].
        empirical_risk: Observed share of errors among the accepted examples.
        risk_level: Smallest alpha whose threshold reaches this uncertainty.
    """

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float


def threshold_on(
    curve: ThresholdCurve, alpha: float, guarantee: Guarantee, delta: float | None
) -> float:
    """Returns lambda_hat in nats on the curve of pairs that all have labels."""
    if guarantee == "marginal":
        return curve.threshold(alpha)
    assert delta is not None, "pac needs a delta"
    return pac_threshold_of_counts(
        curve.scores,
        curve.accepted,
        curve.errors,
        alpha=rounded_down(alpha),
        delta=rounded_down(delta),
        label_noise=curve.label_noise,
    )
