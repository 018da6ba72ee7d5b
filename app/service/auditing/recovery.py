"""Recovery after an alarm: how many audits to label before the first look."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.core.comparison import Criterion
from app.core.monitoring import MonitoredCriterion
from app.core.recovery import labels_for_verdicts
from app.service.auditing.ledger import CLOSED, NO_LABEL, TIE, Labels


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """The audits that make a new calibration after an alarm.

    Args:
        criterion: The criterion that needs the most labels.
        since: Time at which the newest active alarm rang, in seconds since 1970.
        audits: Number of audits to label before the first look, the first ones since the alarm.
            Nothing that was drawn or labelled since then decides it. None if it is above 100,000.
        fixed: Whether somebody has fixed the number in the trail.
        drawn: Number of audits that were drawn since the alarm.
        labelled: Number of those that have a label or are closed, of the first `audits`.
    """

    criterion: Criterion
    since: float
    audits: int | None
    fixed: bool
    drawn: int
    labelled: int


def recovery_of(
    labels: Labels,
    criteria: Sequence[MonitoredCriterion],
    *,
    since: float,
    fixed: int | None = None,
) -> Recovery:
    """Counts the audits that a recovery needs and has.

    A tie is not an example, nor is a closed audit. So the number of labels is divided by the
    share of sides among the labels from before the alarm, which say nothing about later draws.

    Args:
        labels: The labels of the set's audits by its judge.
        criteria: The monitored criteria of the set, at least one. Those with an alarm count, or
            else the one with the most labels.
        since: Time at which the alarm rang, in seconds since 1970.
        fixed: Number of audits that somebody has fixed; None for the one that is needed.
    """
    rows = labels.rows()
    is_later = rows["at"] >= since
    later, before = rows["label"][is_later], rows[~is_later]
    # A label that comes later must not move the number.
    before = before["label"][(before["label"] != NO_LABEL) & (before["labelled_at"] <= since)]
    sides = int((~np.isin(before, (TIE, CLOSED))).sum())
    share = sides / len(before) if sides else 1.0
    alarmed = [each for each in criteria if each.alarm]
    asked = alarmed or [max(criteria, key=lambda each: each.figures.audited)]
    needs = [labels_for_verdicts(each.criterion) or math.inf for each in asked]
    most = max(needs)
    number = fixed or (None if math.isinf(most) else math.ceil(most / share))
    return Recovery(
        criterion=asked[needs.index(most)].criterion,
        since=since,
        audits=number,
        fixed=fixed is not None,
        drawn=len(later),
        labelled=int((later[:number] != NO_LABEL).sum()),
    )
