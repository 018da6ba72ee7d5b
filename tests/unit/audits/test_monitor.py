"""Tests of the monitor: which labels count, expiry, versions, restarts and suspension."""

import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from app.audits import figures as figures_module
from app.audits.auditor import Auditor
from app.audits.entries import Audit
from app.audits.figures import monitored
from app.audits.monitor import Monitor
from app.core.comparison import Label
from app.core.monitoring import (
    AGAIN_S,
    QUESTION_S,
    MonitorFigures,
    alarm_delta,
    monitor,
)
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from scope_judge.records import MonitoredCriterion, OnAlarm
from tests.serving import services_of
from tests.unit.audits.judged import calibrate
from tests.unit.audits.logs import (
    EXPIRES_S,
    MARGINAL,
    PAC,
    Entry,
    append,
    drawn,
    folded,
    labelled,
)

# The judge prefers response_a in the draws of `drawn`, so this label is an error.
WRONG: Label = "B"


class Scene:
    """A monitor of a set whose version has the write id of the set, over a log in memory."""

    def __init__(self, services: Services, *, on_alarm: OnAlarm = "report") -> None:
        self.services = services
        self.now = 0.0
        self.telemetry = Telemetry.on_own_registry()
        self.auditor = Auditor(
            services.store,
            self.telemetry,
            fingerprint="f" * 64,
            rate=1.0,
            expires_s=EXPIRES_S,
            now=lambda: self.now,
        )
        self.monitor = self.fresh_monitor(on_alarm=on_alarm)

    def fresh_monitor(self, *, on_alarm: OnAlarm = "report") -> Monitor:
        calibrations, telemetry = self.services.calibrations, self.telemetry
        return Monitor(
            self.auditor,
            calibrations,
            telemetry,
            on_alarm=on_alarm,
        )

    async def append(self, *entries: Entry) -> None:
        await append(self.services.store, *entries)
        await self.auditor.catch_up()

    async def reports(self, monitor: Monitor | None = None) -> dict[float, MonitoredCriterion]:
        """Report of each alpha under the current version."""
        calibration = await self.services.calibrations.get("default")
        report = await (monitor or self.monitor).of(calibration)
        return {audits.shown.alpha: audits.shown for audits in report.criteria}

    async def report(self) -> MonitoredCriterion:
        (only,) = (await self.reports()).values()
        return only


@asynccontextmanager
async def scene(*, on_alarm: OnAlarm = "report") -> AsyncIterator[tuple[Scene, str]]:
    """A scene, and the write id of its set."""
    async with services_of() as services:
        calibration = await calibrate(services, n=50)
        yield Scene(services, on_alarm=on_alarm), calibration.write_id


@dataclass(kw_only=True)
class Walk:
    """A walk over the audits of one criterion.

    Args:
        bets: Time of the first draw of each bet of a question, and its audits, in order.
        repeated: Number of audits whose question counts already.
    """

    bets: list[tuple[str, float, list[Audit]]] = field(default_factory=list)
    repeated: int = 0

    def add(self, audit: Audit) -> None:
        for question, first, audits in self.bets:
            if question == audit.question and audit.uses[0].at - first < AGAIN_S:
                if audit.uses[0].at - first < QUESTION_S:
                    audits.append(audit)
                else:
                    self.repeated += 1
                return
        self.bets.append((audit.question, audit.uses[0].at, [audit]))


def state_of(audit: Audit, *, now: float) -> str:
    ends = audit.uses[0].at + EXPIRES_S
    if audit.labelled_at is not None and audit.labelled_at <= ends:
        return audit.label or ""
    return "expired" if now > ends else "open"


def naive(walk: Walk, *, now: float, place: int) -> tuple[MonitorFigures, int, int]:
    """Figures of the questions before the first one with an open draw; ties, and waiting labels."""
    errors, unlabeled, questions = list[bool](), list[bool](), list[int]()
    ties = waiting = 0
    holds = False
    for number, (_, _, audits) in enumerate(walk.bets):
        states = [state_of(audit, now=now) for audit in audits]
        holds |= "open" in states or now < audits[0].uses[0].at + QUESTION_S
        if holds:
            waiting += sum(state not in ("open", "expired") for state in states)
            continue
        for audit, state in zip(audits, states, strict=True):
            ties += state == "tie"
            if state != "tie":
                errors.append((state == "A") != (sum(audit.score.gaps) > 0))
                unlabeled.append(state in ("none", "expired"))
                questions.append(number)
    figures = monitor(
        np.array(errors, dtype=bool),
        questions=np.array(questions, dtype=np.int64),
        unlabeled=unlabeled,
        alpha=0.1,
        false_alarms=alarm_delta(place),
    )
    return figures, ties, waiting


numbers = st.integers(0, 14)
times = st.one_of(st.floats(0, 2000), st.floats(3000, 200_000))
some_draws = st.builds(
    lambda number, write_id, accepted, at, gap, criterion, question: drawn(
        number,
        write_id=write_id,
        accepted=accepted,
        at=at,
        gap_fwd=gap,
        gap_rev=0.1,
        criterion=criterion,
        question=f"{question}" * 64,
    ),
    numbers,
    st.sampled_from(("w1", "w1", "earlier")),
    st.booleans(),
    times,
    st.sampled_from((2.0, -2.0)),
    st.sampled_from((MARGINAL, PAC)),
    st.integers(1, 4),
)
some_labels = st.builds(
    lambda number, label, at: labelled(number, label, at=at),
    numbers,
    st.sampled_from(("A", "B", "tie", "none")),
    times,
)


@settings(max_examples=150)
@given(st.lists(st.one_of(some_draws, some_labels), max_size=40), times)
def test_the_monitor_says_the_same_as_a_walk_over_the_audits(
    entries: list[Entry], now: float
) -> None:
    book = folded(*entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures_module, "QUESTION_S", QUESTION_S)
        criteria, until = monitored(book.audits.values(), "w1", states={}, now=now)
    all_draws = [entry for entry in entries if isinstance(entry, Audit)]
    draws = [draw for draw in all_draws if draw.uses[0].write_id == "w1"]
    # In the order in which they came into use.
    came = list(dict.fromkeys(draw.uses[0].criterion for draw in draws))
    assert {audits.criterion for audits in criteria} == set(came)
    ends = list[float]()
    for audits in criteria:
        of_criterion: dict[str, Audit] = {}
        for draw in draws:
            if draw.uses[0].criterion == audits.criterion:
                of_criterion.setdefault(draw.id, draw)
        walk, states = Walk(), Counter[str]()
        for draw in of_criterion.values():
            if draw.uses[0].accepted:
                # Score and question of a draw are those of its first entry.
                seen = replace(book.audits[draw.key], uses=draw.uses)
                states[state_of(seen, now=now)] += 1
                walk.add(seen)
                if state_of(seen, now=now) == "open":
                    ends.append(draw.uses[0].at + EXPIRES_S)
        complete = [first + QUESTION_S for _, first, _ in walk.bets]
        ends += [at for at in complete if at > now]
        place = came.index(audits.criterion) + 1
        figures, ties, waiting = naive(walk, now=now, place=place)
        shown = audits.shown
        assert {name: getattr(shown, name) for name in asdict(figures)} == asdict(figures)
        assert (shown.ties, shown.waiting, shown.repeated) == (ties, waiting, walk.repeated)
        assert (shown.open, shown.expired) == (states["open"], states["expired"])
        assert shown.abstentions == len(of_criterion) - sum(states.values())
    assert until == min(ends, default=math.inf)


async def test_an_open_draw_holds_later_labels_up_until_it_has_expired() -> None:
    async with scene() as (stage, write_id):
        await stage.append(*(drawn(i, write_id=write_id) for i in range(10)))
        await stage.append(*(labelled(i, "A") for i in range(10) if i != 3))
        stage.now = 3.0 + EXPIRES_S
        shown = await stage.report()
        assert (shown.audited, shown.waiting, shown.open) == (3, 6, 1)
        # Nothing in the store changes; only the time does.
        stage.now += 0.1
        shown = await stage.report()
        assert (shown.audited, shown.waiting, shown.open, shown.expired) == (9, 0, 0, 1)
        # It is an error for the certificate alone.
        assert shown.certificate < monitor([False] * 9, alpha=0.1).certificate
        assert shown.errors == 0


async def test_an_audit_that_holds_labels_up_is_shown_with_its_age_and_key() -> None:
    day = 86_400.0
    async with scene() as (stage, write_id):
        await stage.append(
            *(drawn(i, write_id=write_id, by=f"key {i}", wait_s=14 * day) for i in range(6))
        )
        await stage.append(*(labelled(i, "A") for i in (0, 3, 4)))

        def shown() -> dict[str, tuple[dict[str, str], float]]:
            text, _ = stage.telemetry.exposition()
            return {
                sample.name: (sample.labels, sample.value)
                for family in text_string_to_metric_families(text.decode())
                for sample in family.samples
                if sample.name.startswith("scope_audits_")
            }

        stage.now = day
        await stage.report()
        of_set = {"calibration": "default"}
        assert shown() == {
            "scope_audits_waiting": (of_set, 2.0),
            "scope_audits_oldest_open_age_seconds": ({**of_set, "key": "key 1"}, day - 1.0),
        }
        await stage.append(*(labelled(i, "A") for i in (2, 5)), labelled(1, "none"))
        await stage.report()
        assert shown() == {"scope_audits_waiting": (of_set, 0.0)}


@pytest.mark.parametrize("on_alarm", get_args(OnAlarm))
async def test_an_alarm_suspends_all_alphas_of_its_set_up_to_its_own(
    on_alarm: OnAlarm,
) -> None:
    async with scene(on_alarm=on_alarm) as (stage, write_id):
        strict, loose = (replace(MARGINAL, alpha=alpha) for alpha in (0.05, 0.2))
        await stage.append(
            *(drawn(i, write_id=write_id) for i in range(30)),
            *(labelled(i, WRONG) for i in range(30)),
        )
        calibration = await stage.services.calibrations.get("default")
        asked = [(each, calibration) for each in (MARGINAL, strict, PAC, loose)]
        # The first judgment does not wait for `follow`.
        found = await stage.fresh_monitor(on_alarm=on_alarm).suspended(asked)
        assert found == ({MARGINAL, strict, PAC} if on_alarm == "abstain" else set())
        assert await stage.monitor.suspended(asked) == found
