"""The thresholds in use and their effect on the labelled pairs of each group."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.core.assessment import share_interval
from app.core.calibration import Calibration
from app.core.comparison import Criterion, Guarantee
from app.core.errors import LabelsMissingError


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRow:
    """The effect of one criterion on the labelled pairs of one group.

    Args:
        group: The group.
        alpha: Largest share of errors among accepted verdicts, in (0, 1).
        guarantee: "marginal" or "pac".
        delta: In (0, 1) for "pac"; None for "marginal".
        threshold: Threshold for the group in nats; -inf if infeasible, None if it depends on labels
            that the set does not have.
        threshold_of: The group that has this threshold, or `groups.ALL`.
        pairs: Number of pairs of the group with a preferred side.
        accepted: Number of these that the threshold accepts.
        errors: Number of errors among these; None while pairs of the group have no label, because
            those that have one are not a sample then.
    """

    group: str
    alpha: float
    guarantee: Guarantee
    delta: float | None
    threshold: float | None
    threshold_of: str
    pairs: int
    accepted: int
    errors: int | None

    @property
    def coverage(self) -> float:
        """Accepted share of the pairs, in [0, 1]."""
        return self.accepted / self.pairs if self.pairs else 0.0

    @property
    def error(self) -> float | None:
        """Observed share of errors among the accepted pairs; None without such a pair."""
        return None if self.errors is None or not self.accepted else self.errors / self.accepted

    @property
    def error_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the error, as if all pairs were independent; None without an error.

        The labels are those that chose the threshold.
        """
        return None if self.error is None else share_interval(self.error, self.accepted)


def group_rows(calibration: Calibration, criteria: Iterable[Criterion]) -> list[GroupRow]:
    """Returns a row for each group of a set and each criterion with an alpha.

    Long work: a threshold of "pac" that the set has not kept takes milliseconds.
    """
    asked = sorted(
        (criterion for criterion in criteria if criterion.alpha is not None),
        key=lambda each: (each.guarantee, each.alpha or 0.0, each.delta or 0.0),
    )
    return [
        group_row(calibration, group, criterion)
        for group in calibration.parts
        for criterion in asked
    ]


def group_row(calibration: Calibration, group: str, criterion: Criterion) -> GroupRow:
    """Returns the row of a group of a set and a criterion with an alpha."""
    part, alpha = calibration.parts[group], criterion.alpha
    assert alpha is not None, "without an alpha there is no threshold"
    judging, threshold = calibration.judging(group), None
    accepted, errors = 0, 0
    try:
        threshold = judging.threshold(alpha, criterion.guarantee, criterion.delta)
    except LabelsMissingError:
        pass
    else:
        accepted, errors = part.accepted_and_errors(threshold)
    return GroupRow(
        group=group,
        alpha=alpha,
        guarantee=criterion.guarantee,
        delta=criterion.delta,
        threshold=threshold,
        threshold_of=calibration.threshold_of(group),
        pairs=part.labelled,
        accepted=accepted,
        errors=None if part.unlabelled else errors,
    )
