"""Recovery after an alarm: the draws that become the next calibration."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.audits.alarms import Alarm
from app.audits.entries import Audit
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


def recovery_of(audits: Iterable[Audit], alarm: Alarm) -> Recovery:
    """Counts the draws since an alarm.

    Args:
        audits: The audits of the set by its judge, in the order of their draws.
        alarm: The first active alarm of the set.
    """
    needed = alarm.entry.needed
    later = [audit for audit in audits if audit.position > alarm.position]
    return Recovery(
        criterion=alarm.entry.criterion,
        since=alarm.entry.at,
        audits=needed,
        drawn=len(later),
        labelled=sum(audit.label is not None for audit in later[:needed]),
    )
