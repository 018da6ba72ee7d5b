"""The draws of a version of a set that count, and what they prove about each criterion."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from app.core.monitoring import (
    LEFT_OUT,
    MONITOR_DELTA,
    JudgedSpan,
    Monitored,
    MonitoredCriterion,
    MonitoredGroup,
    MonitoredKey,
    MonitorFigures,
    OpenDraw,
    Ringing,
    Watched,
    alarm_delta,
    bets_of,
    monitor,
)
from app.core.preference import gaps_in_reverse, preference_from_gaps
from app.service.auditing.alarms import AlarmState
from app.service.auditing.entries import Decider
from app.service.auditing.ledger import CLOSED, LABEL_A, NO_LABEL, TIE, Rows, Uses

# Keys that the audits of a criterion are shown by.
_MOST_KEYS = 20
# No group has this number.
_NO_GROUP = -1


def monitored(
    uses: Uses,
    *,
    states: Mapping[Watched, AlarmState],
    groups: Collection[str] = (),
    now: float,
    expires_s: float,
) -> tuple[tuple[MonitoredCriterion, ...], float]:
    """Returns the audits of each criterion, and a time until which only the log can change them.

    Args:
        uses: The drawn judgments by one version.
        states: The alarms of the set. Draws before the end of the last one do not count, and a
            criterion or group whose alarm is active is shown even without draws by this version.
        groups: The declared groups, which share the false alarms of groups.
        now: The time in seconds since 1970.
        expires_s: Seconds after which a draw without a label expires.
    """
    criteria, until = list[MonitoredCriterion](), math.inf
    all_rows, deciders = uses.rows(), dict(uses.deciders)
    drawn = {decider.criterion for decider in deciders.values()}
    standing = (state.standing.entry.decider for state in states.values() if state.standing)
    rung = {each.criterion: each for each in standing if each.criterion not in drawn}
    # No draw has these numbers.
    deciders |= enumerate(rung.values(), -len(rung))
    places = {number: place for place, number in enumerate(deciders, start=1)}
    for number, decider in sorted(deciders.items(), key=lambda item: _order(item[1])):
        rows = all_rows[all_rows["decider"] == number]
        watch = _Watch(decider=decider, states=states, now=now, expires_s=expires_s, uses=uses)
        draws = watch.draws(rows)
        until = min(until, draws.next_end)
        sided, waiting = draws.sided, draws.accepted[draws.is_open]
        keys = _keys_by_errors(sided.rows, waiting, drawn=draws.accepted)
        place = places[number]
        criteria.append(
            MonitoredCriterion(
                criterion=decider.criterion,
                abstentions=int((~watch.since_alarm(rows)["accepted"]).sum()),
                keys=tuple(
                    _of_key(key, sided, waiting, decider=decider, names=uses.keys)
                    for key in keys[:_MOST_KEYS]
                ),
                further_keys=max(0, len(keys) - _MOST_KEYS),
                groups=watch.groups(rows, declared=groups, place=place),
                **watch.monitored(draws, false_alarms=alarm_delta(place)),
            )
        )
    return tuple(criteria), float(until)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Watch:
    """One criterion at one time; see `monitored`."""

    decider: Decider
    states: Mapping[Watched, AlarmState]
    now: float
    expires_s: float
    uses: Uses

    def groups(
        self, rows: Rows, *, declared: Collection[str], place: int
    ) -> tuple[MonitoredGroup, ...]:
        """Returns the audits of each group that has draws or an alarm, in order of the names."""
        numbers = {
            name: number
            for number in np.unique(rows["group"]).tolist()
            if (name := self.uses.groups[number]) is not None
        }
        rung = [
            watched.group
            for watched, state in self.states.items()
            if watched.criterion == self.decider.criterion and state.standing is not None
        ]
        names = sorted({*numbers, *(name for name in rung if name is not None)})
        delta = alarm_delta(place, groups=max(1, len({*declared, *names})))
        return tuple(
            MonitoredGroup(
                group=name,
                monitored=Monitored(
                    **self.monitored(
                        self.draws(rows[rows["group"] == numbers.get(name, _NO_GROUP)], name),
                        group=name,
                        false_alarms=delta,
                    )
                ),
            )
            for name in names
        )

    def since_alarm(self, rows: Rows, group: str | None = None) -> Rows:
        """Returns the draws after the end of the last alarm of the criterion, or of a group."""
        watched = {None, group}
        ended = max(self._state(each).ended for each in watched)
        return rows[rows["position"] > ended]

    def draws(self, rows: Rows, group: str | None = None) -> "_Draws":
        """Returns the accepted draws that say something about the time since the last alarm."""
        rows = self.since_alarm(rows, group)
        return _Draws.of(rows[rows["accepted"]], now=self.now, expires_s=self.expires_s)

    def monitored(
        self, draws: "_Draws", *, group: str | None = None, false_alarms: float
    ) -> "_Fields":
        """Returns the fields of `Monitored`."""
        sided, standing = draws.sided, self._state(group).standing
        figures = sided.figures(self.decider, false_alarms=false_alarms)
        return {
            "figures": figures,
            "ties": int(draws.is_tie.sum()),
            "repeated": int((draws.bets == LEFT_OUT).sum()),
            "waiting": int((draws.is_decided & (draws.bets >= draws.held)).sum()),
            "open": int(draws.is_open.sum()),
            "expired": int(draws.is_expired.sum()),
            "oldest": None if draws.holder is None else _open_draw(draws.holder, self.uses),
            "alarm_span": None if figures.alarm_at is None else sided.span(figures.alarm_at),
            "rang": None if standing is None else standing.entry.ringing,
        }

    def _state(self, group: str | None) -> AlarmState:
        watched = Watched(criterion=self.decider.criterion, group=group)
        return self.states.get(watched, AlarmState())


class _Fields(TypedDict):
    """The fields of `Monitored`, which `MonitoredCriterion` has, too."""

    figures: MonitorFigures
    ties: int
    repeated: int
    waiting: int
    open: int
    expired: int
    oldest: OpenDraw | None
    alarm_span: JudgedSpan | None
    rang: Ringing | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sided:
    """Draws that count for the error: labelled with a side, closed, or expired.

    Args:
        rows: The draws.
        bets: Number of each one's bet.
        is_expired: Whether each got no label in time.
    """

    rows: Rows
    bets: NDArray[np.int64]
    is_expired: NDArray[np.bool_]

    def of_key(self, key: int) -> "_Sided":
        """Returns the draws of the key with a number."""
        own = self.rows["by"] == key
        return _Sided(rows=self.rows[own], bets=self.bets[own], is_expired=self.is_expired[own])

    def figures(self, decider: Decider, *, false_alarms: float = MONITOR_DELTA) -> MonitorFigures:
        """Returns what the draws prove; see `core.monitoring.monitor`."""
        return monitor(
            is_error(self.rows),
            questions=self.bets,
            closed=(self.rows["label"] == CLOSED) & ~self.is_expired,
            expired=self.is_expired,
            alpha=_alpha(decider),
            false_alarms=false_alarms,
        )

    def span(self, questions: int) -> JudgedSpan:
        """Returns the times of the first and the last judgment of the first questions."""
        last = np.unique(self.bets)[questions - 1]
        times = self.rows["at"][self.bets <= last]
        return JudgedSpan(first_judged_at=float(times.min()), last_judged_at=float(times.max()))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Draws:
    """The accepted draws of one criterion at one time, in the order of the log.

    Args:
        accepted: The draws.
        bets: Number of each one's bet, or `LEFT_OUT`.
        is_decided: Whether each has a label, or was closed, in time.
        is_open: Whether each waits for its label.
        next_end: Time at which the next open one expires, in seconds since 1970.
    """

    accepted: Rows
    bets: NDArray[np.int64]
    is_decided: NDArray[np.bool_]
    is_open: NDArray[np.bool_]
    next_end: float

    @classmethod
    def of(cls, accepted: Rows, *, now: float, expires_s: float) -> "_Draws":
        """Sorts draws by what has become of them; see `monitored`."""
        ends = accepted["at"] + expires_s
        labelled = (accepted["label"] != NO_LABEL) & (accepted["labelled_at"] <= ends)
        is_open = ~labelled & (now <= ends)
        digests = np.ascontiguousarray(accepted["question"]).view(np.uint8).reshape(-1, 32)
        return cls(
            accepted=accepted,
            bets=bets_of(digests, accepted["at"]),
            is_decided=labelled,
            is_open=is_open,
            next_end=float(ends[is_open].min(initial=math.inf)),
        )

    @property
    def is_expired(self) -> NDArray[np.bool_]:
        """Whether each got no label in time."""
        return ~self.is_decided & ~self.is_open

    @property
    def held(self) -> int:
        """Number of the first bet with an open draw: it and all later ones do not count yet."""
        waits = self.bets[self.is_open & (self.bets != LEFT_OUT)]
        return int(waits.min(initial=len(self.bets)))

    @property
    def holder(self) -> np.void | None:
        """The first open draw of that bet; None if nothing is held up."""
        holders = self.accepted[self.is_open & (self.bets == self.held)]
        return holders[0] if len(holders) else None

    @property
    def _counts(self) -> NDArray[np.bool_]:
        counts: NDArray[np.bool_] = (self.bets != LEFT_OUT) & (self.bets < self.held)
        return counts

    @property
    def is_tie(self) -> NDArray[np.bool_]:
        """Whether each counts and is a tie."""
        is_tie: NDArray[np.bool_] = self.is_decided & (self.accepted["label"] == TIE)
        return self._counts & is_tie

    @property
    def sided(self) -> _Sided:
        """Labels that count and are not ties."""
        sided = self._counts & ~self.is_tie
        return _Sided(
            rows=self.accepted[sided], bets=self.bets[sided], is_expired=self.is_expired[sided]
        )


def _open_draw(row: np.void, uses: Uses) -> OpenDraw:
    return OpenDraw(id=row["id"].tobytes().hex(), key=uses.keys[row["by"]], at=float(row["at"]))


def _keys_by_errors(sided: Rows, waiting: Rows, *, drawn: Rows) -> list[int]:
    """Returns the numbers of the keys of some draws, those with the most errors first.

    Args:
        sided: The draws that count, none of them a tie.
        waiting: The open draws.
        drawn: All draws; keys with equal numbers are in their order.
    """
    wrong = is_error(sided) & ~np.isin(sided["label"], (NO_LABEL, CLOSED))
    errors, labels = Counter(sided["by"][wrong].tolist()), Counter(sided["by"].tolist())
    both = labels.keys() | set(waiting["by"].tolist())
    keys = [key for key in dict.fromkeys(drawn["by"].tolist()) if key in both]
    return sorted(keys, key=lambda key: (-errors[key], -labels[key]))


def _of_key(
    key: int,
    sided: _Sided,
    waiting: Rows,
    *,
    decider: Decider,
    names: Mapping[int, str | None],
) -> MonitoredKey:
    """Returns the audits of one key.

    Args:
        key: Number of the key.
        sided: The draws of all keys that count, none of them a tie.
        waiting: The open draws of all keys.
        decider: The decider of the draws.
        names: The names of keys by their numbers.
    """
    figures = sided.of_key(key).figures(decider)
    return MonitoredKey(
        key=names[key],
        audited=figures.audited,
        errors=figures.errors,
        evidence=figures.evidence,
        open=int((waiting["by"] == key).sum()),
    )


def is_error(rows: Rows) -> NDArray[np.bool_]:
    """Shape (n,). Whether each label, none of them a tie, differs from the verdict.

    The entry of a draw that has no label or was closed means nothing.
    """
    gap_rev = gaps_in_reverse(rows["gap_fwd"], rows["gap_rev"])
    p_bar = preference_from_gaps(rows["gap_fwd"], gap_rev).p_bar
    return np.where(rows["label"] == LABEL_A, p_bar <= 0.5, p_bar >= 0.5)


def _alpha(decider: Decider) -> float:
    alpha = decider.criterion.alpha
    assert alpha is not None
    return alpha


def _order(decider: Decider) -> tuple[str, float, float]:
    """The order in which criteria are shown."""
    return decider.criterion.guarantee, _alpha(decider), decider.criterion.delta or 0.0
