"""Decides one comparison: a verdict, or an abstention with its reason."""

import math
from dataclasses import dataclass, replace

from app.core.calibration import Calibration
from app.core.comparison import Criterion, Judgment, Reason, Verdict
from app.core.score import Orders, Preference, Unscored
from app.core.thresholds import ThresholdCurve
from scope_judge.records import CalibrationReference


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceRule:
    """A criterion with its threshold.

    Args:
        threshold: Largest accepted uncertainty in nats; -inf if infeasible, None without an alpha.
        curve: Curve that risk levels come from; None under "pac", where the threshold can fall when
            alpha rises, and without an alpha.
        calibration: Version of the calibration set; None without an alpha.
        age_s: Seconds since the store last confirmed it.
        min_label_mass: A judgment with less label mass is off task.
        suspended: Whether nothing is accepted, because audits have raised an alarm.
        temperature: Number by which the gaps of the judge are divided.
        first: Largest uncertainty at which the small judge of a cascade decides; `threshold` is
            then the large one's. None for a judge alone.
    """

    criterion: Criterion
    threshold: float | None = None
    curve: ThresholdCurve | None = None
    calibration: CalibrationReference | None = None
    age_s: float = 0.0
    min_label_mass: float = 0.0
    suspended: bool = False
    temperature: float = 1.0
    first: float | None = None

    @classmethod
    def of(
        cls,
        criterion: Criterion,
        calibration: Calibration,
        threshold: float,
        *,
        age_s: float = 0.0,
        suspended: bool = False,
    ) -> "AcceptanceRule":
        """Joins a criterion with an alpha to its calibration and to its threshold.

        Args:
            age_s: Seconds since the store last confirmed the calibration.
            suspended: Whether audits have raised an alarm.
        """
        first = None
        if calibration.cascade is not None:
            assert criterion.alpha is not None
            assert criterion.delta is not None
            # Found a moment ago, with the threshold.
            first = calibration.chosen(criterion.alpha, criterion.delta).first
        return cls(
            criterion=criterion,
            threshold=threshold,
            curve=calibration.curve if criterion.guarantee == "marginal" else None,
            calibration=CalibrationReference(
                name=calibration.name,
                version=calibration.version,
                n=calibration.n,
            ),
            age_s=age_s,
            min_label_mass=calibration.min_label_mass,
            suspended=suspended,
            temperature=calibration.temperature,
            first=first,
        )

    @property
    def by_small(self) -> "AcceptanceRule":
        """The rule for a preference of the small judge; nothing is infeasible without an alpha."""
        return self if self.first is None else replace(self, threshold=self.first)

    def decides_first(self, preference: Preference, label_mass: float | None) -> bool:
        """Whether the small judge's preference is the answer, so that the large one is not asked.

        It is also if nothing is accepted whatever the large judge says. Without an alpha the large
        judge decides everything.
        """
        if self.threshold == -math.inf:
            return True
        if self.first is None:
            return False
        on_task = label_mass is None or label_mass >= self.min_label_mass
        return on_task and preference.is_accepted(self.first)

    def risk_level(self, uncertainty: float) -> float | None:
        """The smallest alpha that accepts this uncertainty; None if it is not defined."""
        level = None if self.curve is None else self.curve.risk_level(uncertainty)
        return None if level == math.inf else level


def unscored(reason: Unscored, rule: AcceptanceRule, *, judge: str) -> Judgment:
    """Abstains because the judge gave no score, whatever the criterion is."""
    return Judgment(
        verdict="abstain",
        reason=reason,
        preference=None,
        label_mass=None,
        temperature=rule.temperature,
        threshold=None if rule.threshold == -math.inf else rule.threshold,
        criterion=rule.criterion,
        risk_level=None,
        calibration=rule.calibration,
        age_s=rule.age_s,
        judge=judge,
    )


def decide(
    preference: Preference,
    rule: AcceptanceRule,
    *,
    label_mass: float | None,
    judge: str,
    orders: Orders = 2,
    cached: bool = False,
    bounded: bool = False,
) -> Judgment:
    """Accepts the judge's preference, or abstains with the first reason that applies.

    Args:
        label_mass: Probability on the two labels; the smaller one of the two orders. None where the
            judge does not say it: nothing is off task then.
        cached: Whether an earlier call of the judge made the score.
        bounded: Whether a probability of the judge was 0 or 1, and half a step of its rounding
            stands for it.
    """
    side, threshold = preference.side, rule.threshold
    verdict: Verdict = "abstain"
    reason: Reason | None = None
    # Checked first: without mass on the labels the preference means nothing.
    if label_mass is not None and label_mass < rule.min_label_mass:
        reason = "off_task"
    elif side is None:
        reason = "no_preference"
    elif rule.suspended:
        reason = "suspended"
    elif threshold == -math.inf:
        reason = "infeasible"
    elif threshold is not None and not preference.is_accepted(threshold):
        reason = "uncertain"
    else:
        verdict = side
    # No alpha accepts such a judgment, so it has no risk level.
    never = reason in ("off_task", "no_preference")
    return Judgment(
        verdict=verdict,
        reason=reason,
        preference=preference,
        label_mass=label_mass,
        orders=orders,
        temperature=rule.temperature,
        threshold=None if threshold == -math.inf else threshold,
        criterion=rule.criterion,
        risk_level=None if never else rule.risk_level(preference.uncertainty),
        calibration=rule.calibration,
        age_s=rule.age_s,
        judge=judge,
        cached=cached,
        bounded=bounded,
    )
