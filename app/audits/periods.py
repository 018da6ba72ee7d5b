"""Drawn judgments of a set over time: how many were verdicts, and how many abstentions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.audits.entries import Audit

MOST_PERIODS = 48
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
# Lengths that people know, in seconds.
_LENGTHS = (
    _MINUTE,
    5 * _MINUTE,
    15 * _MINUTE,
    _HOUR,
    4 * _HOUR,
    _DAY,
    7 * _DAY,
    *[28 * _DAY * 2**power for power in range(12)],
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """The drawn judgments of one period.

    Args:
        since: Its start in seconds since 1970.
        until: Its end.
        accepted: Number of verdicts.
        abstentions: Number of abstentions.
    """

    since: float
    until: float
    accepted: int
    abstentions: int


def periods_of(audits: Iterable[Audit], *, now: float) -> Sequence[Period]:
    """Counts drawn judgments in at most `MOST_PERIODS` periods of one length; for any thread.

    Args:
        audits: The audits of the set.
        now: The time in seconds since 1970.

    Returns:
        The periods from the first draw to the present one, in order; none without draws.
    """
    uses = [use for audit in audits for use in audit.uses]
    if not uses:
        return []
    at = np.array([use.at for use in uses])
    accepted = np.array([use.accepted for use in uses])
    # A clock that was set back must not put a draw after the last period.
    first, last = float(at.min()), max(now, float(at.max()))
    length = next(each for each in _LENGTHS if last // each - first // each < MOST_PERIODS)
    start = first // length
    places = (at // length - start).astype(np.intp)
    count = int(last // length - start) + 1
    verdicts = np.bincount(places[accepted], minlength=count).tolist()
    abstentions = np.bincount(places[~accepted], minlength=count).tolist()
    return [
        Period(
            since=(start + place) * length,
            until=(start + place + 1) * length,
            accepted=verdicts[place],
            abstentions=abstentions[place],
        )
        for place in range(count)
    ]
