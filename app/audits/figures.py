"""The draws of a version of a set that count, and what they prove about each criterion."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.audits.alarms import AlarmState
from app.audits.book import CLOSED, LABEL_A, NO_LABEL, TIE, Rows, Uses
from app.audits.entries import Decider
from app.core.comparison import Criterion
from app.core.monitoring import (
    LEFT_OUT,
    MONITOR_DELTA,
    QUESTION_S,
    JudgedSpan,
    MonitoredCriterion,
    MonitoredKey,
    MonitorFigures,
    OpenDraw,
    Raised,
    alarm_delta,
    bets_of,
    monitor,
    share_interval,
)
from app.core.preference import FloatArray, gaps_in_reverse, preference_from_gaps

# Keys that the audits of a criterion are shown by.
_MOST_KEYS = 20


def monitored(
    uses: Uses,
    *,
    states: Mapping[Criterion, AlarmState],
    now: float,
) -> tuple[tuple[MonitoredCriterion, ...], float]:
    """Returns the audits of each criterion, and a time until which only new rows can change them.

    Args:
        uses: The drawn judgments by one version.
        states: The alarms of the set. Draws before the end of the last one do not count, and a
            criterion whose alarm is active is shown even without draws by this version.
        now: The time in seconds since 1970.
    """
    criteria, until = list[MonitoredCriterion](), math.inf
    all_rows, deciders = uses.rows, dict(uses.deciders)
    drawn = {decider.criterion for decider in deciders.values()}
    standing = (state.standing.entry.decider for state in states.values() if state.standing)
    alarmed = {each.criterion: each for each in standing if each.criterion not in drawn}
    # No draw has these numbers.
    deciders |= enumerate(alarmed.values(), -len(alarmed))
    places = {number: place for place, number in enumerate(deciders, start=1)}
    for number, decider in sorted(deciders.items(), key=lambda item: _order(item[1])):
        state = states.get(decider.criterion, AlarmState())
        rows = all_rows[all_rows["decider"] == number]
        rows = rows[rows["position"] > state.ended]
        draws = _Draws.of(rows[rows["accepted"]], now=now)
        until = min(until, draws.next_end)
        criteria.append(
            _monitored(
                draws,
                decider,
                uses=uses,
                abstentions=int((~rows["accepted"]).sum()),
                false_alarms=alarm_delta(places[number]),
                raised=None if state.standing is None else state.standing.entry.raised,
            )
        )
    return tuple(criteria), float(until)


def _monitored(
    draws: "_Draws",
    decider: Decider,
    *,
    uses: Uses,
    abstentions: int,
    false_alarms: float,
    raised: Raised | None,
) -> MonitoredCriterion:
    """Returns the audits of one criterion; see `monitored`."""
    sided, waiting = draws.sided, draws.accepted[draws.is_open]
    keys = _keys_by_errors(sided.rows, waiting, drawn=draws.accepted)
    figures = sided.figures(decider, false_alarms=false_alarms)
    has_label = draws.is_tie | draws.is_sided_label
    return MonitoredCriterion(
        criterion=decider.criterion,
        figures=figures,
        ties=int(draws.is_tie.sum()),
        tie_interval=share_interval(draws.is_tie[has_label], draws.bets[has_label]),
        repeated=int((draws.bets == LEFT_OUT).sum()),
        waiting=int((draws.is_decided & (draws.bets >= draws.held)).sum()),
        open=int(draws.is_open.sum()),
        expired=int(draws.is_expired.sum()),
        abstentions=abstentions,
        keys=tuple(
            _of_key(key, sided, waiting, decider=decider, names=uses.keys)
            for key in keys[:_MOST_KEYS]
        ),
        further_keys=max(0, len(keys) - _MOST_KEYS),
        oldest=None if draws.holder is None else _open_draw(draws.holder, uses),
        alarm_span=None if figures.alarm_at is None else sided.span(figures.alarm_at),
        raised=raised,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sided:
    """Draws that count for the error: labeled with a side, closed, or expired.

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
    """The accepted draws of one criterion at one time, in the order of the draws.

    Args:
        accepted: The draws.
        bets: Number of each one's bet, or `LEFT_OUT`.
        is_decided: Whether each has a label, or was closed, in time.
        is_open: Whether each waits for its label.
        is_pending: Whether later draws may still join the bet of each: its first hour is not over.
        next_end: Time at which the next open one expires, or the next such hour ends, in seconds
            since 1970.
    """

    accepted: Rows
    bets: NDArray[np.int64]
    is_decided: NDArray[np.bool_]
    is_open: NDArray[np.bool_]
    is_pending: NDArray[np.bool_]
    next_end: float

    @classmethod
    def of(cls, accepted: Rows, *, now: float) -> "_Draws":
        """Sorts draws by what has become of them; see `monitored`."""
        ends = accepted["at"] + accepted["wait_s"]
        labeled = (accepted["label"] != NO_LABEL) & (accepted["labelled_at"] <= ends)
        is_open = ~labeled & (now <= ends)
        digests = np.ascontiguousarray(accepted["question"]).view(np.uint8).reshape(-1, 32)
        bets = bets_of(digests, accepted["at"])
        closes = _closing(bets, accepted["at"])
        is_pending = now < closes
        next_end = min(
            ends[is_open].min(initial=math.inf), closes[is_pending].min(initial=math.inf)
        )
        return cls(
            accepted=accepted,
            bets=bets,
            is_decided=labeled,
            is_open=is_open,
            is_pending=is_pending,
            next_end=float(next_end),
        )

    @property
    def is_expired(self) -> NDArray[np.bool_]:
        """Whether each got no label in time."""
        return ~self.is_decided & ~self.is_open

    @property
    def held(self) -> int:
        """Number of the first bet that may change: it and all later ones do not count yet.

        A draw of it is open, or its first hour is not over. A draw that joins a bet later would
        change a mean that was bet on.
        """
        waits = self.bets[(self.is_open | self.is_pending) & (self.bets != LEFT_OUT)]
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
    def is_sided_label(self) -> NDArray[np.bool_]:
        """Whether each counts and has a label with a side."""
        label = self.accepted["label"]
        has_side: NDArray[np.bool_] = self.is_decided & (label != TIE) & (label != CLOSED)
        return self._counts & has_side

    @property
    def sided(self) -> _Sided:
        """Labels that count and are not ties."""
        sided = self._counts & ~self.is_tie
        return _Sided(
            rows=self.accepted[sided], bets=self.bets[sided], is_expired=self.is_expired[sided]
        )


def _closing(bets: NDArray[np.int64], at: FloatArray) -> FloatArray:
    """Shape (n,). Time at which the bet of each draw is complete; -inf for draws without a bet."""
    closes = np.full(len(at), -math.inf)
    counted = bets != LEFT_OUT
    _, first, bet = np.unique(bets[counted], return_index=True, return_inverse=True)
    closes[counted] = (at[counted][first] + QUESTION_S)[bet]
    return closes


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
    names: Mapping[int, str],
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
