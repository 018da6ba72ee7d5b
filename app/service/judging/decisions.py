"""Decides one comparison: a verdict, or an abstention with its reason."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from app.core.comparison import CalibrationReference, Criterion, Judgment, Reason, Verdict
from app.core.preference import preferred_side
from app.core.thresholds import ThresholdCurve
from app.service.calibration.cache import Usable


class PreferenceRow(NamedTuple):
    """One row of `Preferences` as Python floats."""

    p_fwd: float
    p_rev: float
    p_bar: float
    uncertainty: float
    confidence: float


class AcceptanceRule(NamedTuple):
    """The threshold of a criterion under its calibration; the fields are None without an alpha.

    Args:
        threshold: Largest accepted uncertainty in nats; -inf if infeasible.
        curve: Curve that risk levels come from; None for "pac".
        reference: Version of the calibration set.
        suspended: Whether nothing is accepted, because audits have raised an alarm.
    """

    threshold: float | None
    curve: ThresholdCurve | None
    reference: CalibrationReference | None
    suspended: bool = False

    @classmethod
    def of(
        cls,
        criterion: Criterion,
        usable: Usable | None,
        pac: Mapping[Criterion, float],
        *,
        suspended: bool = False,
    ) -> "AcceptanceRule":
        """Looks up the threshold: "marginal" in the calibration's curve, "pac" in the mapping."""
        if usable is None or criterion.alpha is None:
            return cls(None, None, None)
        calibration, age_s = usable
        if criterion.guarantee == "marginal":
            threshold = calibration.threshold(criterion.alpha, "marginal", None)
            curve = calibration.curve
        else:
            # "pac" has no risk level, because its threshold can fall when alpha rises.
            threshold, curve = pac[criterion], None
        reference = CalibrationReference(
            calibration.name, calibration.version, calibration.n, age_s
        )
        return cls(threshold, curve, reference, suspended)

    def risk_level(self, uncertainty: float) -> float | None:
        """The smallest alpha that accepts this uncertainty; None if it is not defined."""
        return None if self.curve is None else self.curve.risk_level(uncertainty)


def decide(
    preference: PreferenceRow,
    criterion: Criterion,
    rule: AcceptanceRule,
    *,
    label_mass: float,
    min_label_mass: float,
    judge: str,
) -> Judgment:
    """Accepts the judge's preference, or abstains with the first reason that applies.

    Args:
        preference: The judge's preference between the two responses.
        criterion: Criterion of the request.
        rule: Threshold of the criterion under its calibration.
        label_mass: Probability on the two labels; the smaller one of the two orders.
        min_label_mass: Abstain with the reason "off_task" below this label mass.
        judge: Name of the judge.
    """
    preferred, threshold = preferred_side(preference.p_bar), rule.threshold
    verdict: Verdict = "abstain"
    reason: Reason | None = None
    # Checked first: without mass on the labels the preference means nothing.
    if label_mass < min_label_mass:
        reason = "off_task"
    elif preferred is None:
        reason = "no_preference"
    elif rule.suspended:
        reason = "suspended"
    elif threshold == -math.inf:
        reason = "infeasible"
    elif threshold is not None and preference.uncertainty > threshold:
        reason = "uncertain"
    else:
        verdict = preferred
    # No alpha accepts such a judgment, so it has no risk level.
    never = reason in ("off_task", "no_preference")
    level = None if never else rule.risk_level(preference.uncertainty)
    return Judgment(
        verdict=verdict,
        preferred=preferred,
        reason=reason,
        p_fwd=preference.p_fwd,
        p_rev=preference.p_rev,
        p_bar=preference.p_bar,
        uncertainty=preference.uncertainty,
        confidence=preference.confidence,
        threshold=None if threshold == -math.inf else threshold,
        criterion=criterion,
        risk_level=None if level == math.inf else level,
        label_mass=label_mass,
        calibration=rule.reference,
        judge=judge,
    )
