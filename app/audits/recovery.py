"""Recovery after an alarm: the draws that become the next calibration."""

from dataclasses import dataclass

from app.audits.alarms import Alarm
from app.audits.ledger import NO_LABEL, Labels
from app.core.comparison import Criterion


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """The draws that replace all examples of a set after an alarm.

    Args:
        criterion: The criterion of the first active alarm.
        since: Time of that alarm, in seconds since 1970.
        audits: Number of draws: the first ones since the alarm. None if it is above 100,000.
        drawn: Number of those that were drawn.
        labelled: Number of those that have a label or are closed.
    """

    criterion: Criterion
    since: float
    audits: int | None
    drawn: int
    labelled: int


def recovery_of(labels: Labels, alarm: Alarm) -> Recovery:
    """Counts the draws since an alarm.

    Args:
        labels: The labels of the set's audits by its judge.
        alarm: The first active alarm of the set.
    """
    rows, needed = labels.rows(), alarm.entry.needed
    later = rows["label"][rows["position"] > alarm.position]
    return Recovery(
        criterion=alarm.entry.criterion,
        since=alarm.entry.at,
        audits=needed,
        drawn=len(later),
        labelled=int((later[:needed] != NO_LABEL).sum()),
    )
