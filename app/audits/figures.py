"""The draws of a version of a set that count, and what they prove about each criterion."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from app.audits.book import AlarmState
from app.audits.entries import NO_ALARM, Audit, AuditLabel, Use, in_fields
from app.core.comparison import Criterion
from app.core.monitoring import (
    LEFT_OUT,
    MANY_EXPIRED,
    QUESTION_S,
    MonitorFigures,
    alarm_delta,
    bets_of,
    monitor,
    share_interval,
)
from app.core.preference import gaps_in_reverse, preference_from_gaps
from scope_judge import records


@dataclass(frozen=True, kw_only=True, slots=True)
class CriterionAudits:
    """The audits of one criterion under one version of its set.

    Args:
        shown: The figures that callers see.
        holder: The draw for which the waiting labels wait; None if they wait for none.
        alarms: Whether the labels of this version alone raise the alarm.
        is_recorded: Whether the alarm is active in the trail. An earlier version may have raised
            it, and figures of corrected labels may have no alarm any more.
        ended: Position of the end of its last alarm that has ended; 0 if none has.
    """

    criterion: Criterion
    shown: records.MonitoredCriterion
    holder: Use | None = None
    alarms: bool = False
    is_recorded: bool = False
    ended: int = 0

    @property
    def may_exceed(self) -> bool:
        """Whether labels leave it open that the error is above alpha."""
        return self.shown.labelled > 0 and self.shown.error_interval[1] > self.shown.alpha

    @property
    def loses_many(self) -> bool:
        """Whether so many draws have expired that the certificate is hard to get."""
        done = self.shown.labelled + self.shown.closed + self.shown.expired
        return self.shown.expired > MANY_EXPIRED * done


def monitored(
    audits: Iterable[Audit],
    write_id: str,
    *,
    states: Mapping[Criterion, AlarmState],
    now: float,
    suspends: bool = False,
) -> tuple[tuple[CriterionAudits, ...], float]:
    """Returns the audits of each criterion, and a time until which only new rows can change them.

    Args:
        write_id: The version, whose judgments alone count.
        states: The alarms of the set. Draws before the end of the last one do not count, and a
            criterion whose alarm is active is shown even without draws by this version.
    """
    # In the order of the draws, so the criteria are in the order in which they came into use.
    uses = sorted(
        ((use, audit) for audit in audits for use in audit.uses if use.write_id == write_id),
        key=lambda pair: (pair[0].position, pair[1].id),
    )
    by_criterion = dict[Criterion, list[tuple[Use, Audit]]]()
    for use, audit in uses:
        by_criterion.setdefault(use.criterion, []).append((use, audit))
    for criterion, state in states.items():
        if state.standing is not None:
            by_criterion.setdefault(criterion, [])
    criteria, until = list[CriterionAudits](), math.inf
    for place, (criterion, drawn) in enumerate(by_criterion.items(), start=1):
        state = states.get(criterion, AlarmState())
        draws = _Draws([pair for pair in drawn if pair[0].position > state.ended], now=now)
        until = min(until, draws.next_end)
        false_alarms = alarm_delta(place)
        criteria.append(
            _monitored(criterion, draws, state, false_alarms=false_alarms, suspends=suspends)
        )
    return tuple(sorted(criteria, key=_order)), until


def _monitored(
    criterion: Criterion,
    draws: "_Draws",
    state: AlarmState,
    *,
    false_alarms: float,
    suspends: bool,
) -> CriterionAudits:
    alpha, standing = criterion.alpha, state.standing
    assert alpha is not None, "only criteria with an alpha are audited"
    sided = [draw for draw in draws.counting if draw.state != "tie"]
    figures = _evidence(sided, alpha=alpha, false_alarms=false_alarms)
    labels = [draw for draw in draws.counting if draw.state in ("A", "B", "tie")]
    ties = np.array([draw.state == "tie" for draw in labels], dtype=bool)
    tie_bets = np.array([draw.bet for draw in labels], dtype=np.int64)
    counts = Counter(draw.state for draw in draws.accepted)
    alarm = figures.alarm or standing is not None
    return CriterionAudits(
        criterion=criterion,
        shown=records.MonitoredCriterion(
            **in_fields(criterion),
            **asdict(figures) | {"alarm": alarm},
            **NO_ALARM if standing is None else standing.times,
            labelled=len(labels),
            closed=sum(draw.state == "none" for draw in sided),
            ties=int(ties.sum()),
            tie_interval=share_interval(ties, tie_bets),
            repeated=sum(draw.bet == LEFT_OUT for draw in draws.accepted),
            waiting=sum(
                draw.bet >= draws.held and draw.state not in ("open", "expired")
                for draw in draws.accepted
            ),
            open=counts["open"],
            expired=counts["expired"],
            abstentions=draws.abstentions,
            suspended=suspends and alarm,
        ),
        holder=draws.holder,
        alarms=figures.alarm,
        is_recorded=standing is not None,
        ended=state.ended,
    )


@dataclass(slots=True)
class _Draw:
    """An accepted draw.

    Args:
        ends: Time at which it expires.
        state: Its label, "none" if it was closed, or what became of it without a label in time.
        bet: Number of its bet, or `LEFT_OUT`.
    """

    use: Use
    audit: Audit
    ends: float
    state: AuditLabel | Literal["open", "expired"]
    bet: int = LEFT_OUT

    @classmethod
    def of(cls, use: Use, audit: Audit, now: float) -> "_Draw":
        """The draw at a time."""
        ends = use.at + audit.wait_s
        if audit.label is not None and (audit.labelled_at or 0.0) <= ends:
            return cls(use, audit, ends, audit.label)
        return cls(use, audit, ends, "open" if now <= ends else "expired")


class _Draws:
    """The draws of one criterion at a time, in their order."""

    def __init__(self, uses: Sequence[tuple[Use, Audit]], *, now: float) -> None:
        self.accepted = [_Draw.of(use, audit, now) for use, audit in uses if use.accepted]
        self.abstentions = len(uses) - len(self.accepted)
        questions = bytes.fromhex("".join(draw.audit.question for draw in self.accepted))
        times = np.array([draw.use.at for draw in self.accepted])
        bets = bets_of(np.frombuffer(questions, np.uint8).reshape(-1, 32), times)
        # Bet -> the time at which it is complete: draws may join it in its first hour.
        closes = dict[int, float]()
        for draw, bet in zip(self.accepted, bets.tolist(), strict=True):
            draw.bet = bet
            if bet != LEFT_OUT:
                closes.setdefault(bet, draw.use.at + QUESTION_S)
        pending = {bet: at for bet, at in closes.items() if now < at}
        opened = [draw for draw in self.accepted if draw.state == "open"]
        # Time at which the next open one expires, or the next such hour ends.
        self.next_end = min([*pending.values(), *(draw.ends for draw in opened)], default=math.inf)
        # Number of the first bet that may change: it and all later ones do not count yet. A draw
        # that joins a bet later would change a mean that was bet on.
        waits = {draw.bet for draw in opened if draw.bet != LEFT_OUT} | pending.keys()
        self.held = min(waits, default=len(self.accepted))
        # The first open draw of that bet.
        self.holder = next((draw.use for draw in opened if draw.bet == self.held), None)
        self.counting = [draw for draw in self.accepted if LEFT_OUT < draw.bet < self.held]


def _evidence(draws: Sequence[_Draw], *, alpha: float, false_alarms: float) -> MonitorFigures:
    """Returns what draws with a side, closed or expired ones prove about the error."""
    bets = np.array([draw.bet for draw in draws], dtype=np.int64)
    gaps = np.array([draw.audit.score.numbers for draw in draws]).reshape(-1, 3)
    gap_fwd, gap_rev = gaps[:, 0], gaps_in_reverse(gaps[:, 0], gaps[:, 1])
    prefers_a = np.array([draw.state == "A" for draw in draws], dtype=bool)
    return monitor(
        # That of a draw without a label means nothing.
        preference_from_gaps(gap_fwd, gap_rev).wrong(prefers_a),
        questions=bets,
        unlabeled=np.array([draw.state in ("none", "expired") for draw in draws], dtype=bool),
        alpha=alpha,
        false_alarms=false_alarms,
    )


def _order(audits: CriterionAudits) -> tuple[str, float, float]:
    """The order in which criteria are shown."""
    return audits.shown.guarantee, audits.shown.alpha, audits.shown.delta or 0.0
