"""Tests of the monitor: which labels count, expiry, versions, restarts and suspension."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from app.core.comparison import Criterion, Label
from app.core.monitoring import MonitorFigures, monitor
from app.service.auditing.auditor import Auditor
from app.service.auditing.entries import Entry
from app.service.auditing.ledger import Ledger, Use
from app.service.auditing.monitor import Monitor, OnAlarm, Report, computed
from app.service.services import Services
from app.stores.memory import MemoryStore
from app.telemetry import Telemetry
from tests.serving import services_of
from tests.unit.service.auditing.judged import calibrate
from tests.unit.service.auditing.logs import MARGINAL, PAC, drawn, folded, labelled

EXPIRES_S = 1000.0
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
            self.auditor, calibrations, telemetry, on_alarm=on_alarm, now=lambda: self.now
        )

    async def append(self, *entries: Entry) -> None:
        await self.services.store.append_audits([each.text for each in entries])
        await self.auditor.catch_up()

    async def reports(self, monitor: Monitor | None = None) -> dict[float, Report]:
        """Report of each alpha under the version in force."""
        calibration = await self.services.calibrations.get("default")
        found = await (monitor or self.monitor).of(calibration)
        return {each.criterion.alpha: each for each in found.reports}

    async def report(self) -> Report:
        (found,) = (await self.reports()).values()
        return found


@asynccontextmanager
async def scene(*, on_alarm: OnAlarm = "report") -> AsyncIterator[tuple[Scene, str]]:
    """A scene, and the write id of its set."""
    async with services_of() as services:
        calibration = await calibrate(services, n=50)
        yield Scene(services, on_alarm=on_alarm), calibration.write_id


def naive(uses: Sequence[Use], *, now: float) -> tuple[list[bool], int, int, int, int]:
    """Errors that count, ties among them, waiting labels, open and expired draws."""
    errors, ties, waiting, is_open, expired = list[bool](), 0, 0, 0, 0
    for use in uses:
        if not use.accepted:
            continue
        draw = use.draw
        ends = use.at + EXPIRES_S
        if draw.label is not None and draw.labelled_at is not None and draw.labelled_at <= ends:
            if is_open:
                waiting += 1
            elif draw.label == "tie":
                ties += 1
            else:
                errors.append((draw.label == "A") != (draw.gap_fwd + draw.gap_rev > 0))
        elif now > ends:
            expired += 1
        else:
            is_open += 1
    return errors, ties, waiting, is_open, expired


numbers = st.integers(0, 14)
some_draws = st.builds(
    lambda number, accepted, at, gap, criterion: drawn(
        number, accepted=accepted, at=at, gap_fwd=gap, gap_rev=0.1, criterion=criterion
    ),
    numbers,
    st.booleans(),
    st.floats(0, 2000),
    st.sampled_from((2.0, -2.0)),
    st.sampled_from((MARGINAL, PAC)),
)
some_labels = st.builds(
    lambda number, label, at: labelled(number, label, at=at),
    numbers,
    st.sampled_from(get_args(Label)),
    st.floats(0, 2000),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(some_draws, some_labels), max_size=40), st.floats(0, 3000))
def test_the_columns_say_the_same_as_a_walk_over_the_uses(entries: list[Entry], now: float) -> None:
    ledger: Ledger = folded(*entries)
    uses = list(ledger.uses("default", "w1").items())
    reports, until = computed(ledger, uses, now=now, expires_s=EXPIRES_S)
    assert len(reports) == len(uses)
    for report in reports:
        of_criterion = ledger.uses("default", "w1")[report.criterion]
        errors, *counts = naive(list(of_criterion), now=now)
        assert report.figures == monitor(np.array(errors, dtype=bool), alpha=0.1)
        assert [report.ties, report.waiting, report.open, report.expired] == counts
        assert report.abstentions == sum(not each.accepted for each in of_criterion)
    ends = [
        use.at + EXPIRES_S
        for _, each in uses
        for use in each
        if use.accepted and use.draw.label is None and now <= use.at + EXPIRES_S
    ]
    assert until <= min(ends, default=math.inf)


@pytest.mark.anyio
async def test_the_alarm_rings_at_the_label_at_which_the_evidence_reaches_20(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as (stage, write_id):
        await stage.append(*(drawn(i, write_id=write_id) for i in range(60)))
        figures = list[MonitorFigures]()
        for i in range(60):
            # Every second verdict is wrong, at alpha 0.1.
            await stage.append(labelled(i, WRONG if i % 2 else "A"))
            figures.append((await stage.report()).figures)
        rang = next(i for i, each in enumerate(figures) if each.alarm)
        assert figures[rang - 1].evidence < 20.0 <= figures[rang].evidence
        assert {each.alarm_at for each in figures[rang:]} == {rang + 1}
        assert (figures[-1].labelled, figures[-1].errors) == (60, 30)
        assert caplog.text.count("show more errors than alpha 0.1 (marginal)") == 1


@pytest.mark.anyio
async def test_an_open_draw_holds_later_labels_up_until_it_has_expired() -> None:
    async with scene() as (stage, write_id):
        await stage.append(*(drawn(i, write_id=write_id) for i in range(10)))
        await stage.append(*(labelled(i, "A") for i in range(10) if i != 3))
        stage.now = 500.0
        found = await stage.report()
        assert (found.figures.labelled, found.waiting, found.open) == (3, 6, 1)
        # Nothing in the log changes; only the time does.
        stage.now = 3.0 + EXPIRES_S
        assert (await stage.report()).open == 1
        stage.now += 0.1
        found = await stage.report()
        assert (found.figures.labelled, found.waiting) == (9, 0)
        assert (found.open, found.expired) == (0, 1)


@pytest.mark.anyio
async def test_ties_and_abstentions_are_counted_and_are_no_errors() -> None:
    async with scene() as (stage, write_id):
        accepted = [drawn(i, write_id=write_id) for i in range(4)]
        refused = [drawn(i, write_id=write_id, accepted=False) for i in range(4, 10)]
        await stage.append(*accepted, *refused)
        await stage.append(labelled(0, "tie"), *(labelled(i, "A") for i in range(1, 4)))
        await stage.append(labelled(5, WRONG))
        found = await stage.report()
        assert (found.figures.labelled, found.figures.errors) == (3, 0)
        assert (found.ties, found.abstentions, found.open) == (1, 6, 0)


@pytest.mark.anyio
async def test_a_correction_changes_the_figures() -> None:
    async with scene() as (stage, write_id):
        await stage.append(*(drawn(i, write_id=write_id) for i in range(30)))
        await stage.append(*(labelled(i, WRONG) for i in range(30)))
        assert (await stage.report()).figures.alarm
        await stage.append(*(labelled(i, "A", at=200.0) for i in range(30)))
        found = (await stage.report()).figures
        assert (found.labelled, found.errors, found.alarm) == (30, 0, False)


@pytest.mark.anyio
async def test_each_criterion_and_version_has_its_own_figures() -> None:
    async with scene() as (stage, write_id):
        strict = MARGINAL._replace(alpha=0.05)
        await stage.append(
            *(drawn(i, write_id=write_id) for i in range(5)),
            *(drawn(i, write_id=write_id, criterion=strict) for i in range(3)),
            *(drawn(i, write_id="earlier") for i in range(20, 40)),
            *(labelled(i, WRONG) for i in (0, 1, 2, *range(20, 40))),
        )
        found = await stage.reports()
        # The same label counts under each criterion under which its judgment was drawn.
        assert {alpha: each.figures.labelled for alpha, each in found.items()} == {0.05: 3, 0.1: 3}
        assert {alpha: each.open for alpha, each in found.items()} == {0.05: 0, 0.1: 2}
        await calibrate(stage.services, n=5, seed=7)
        assert await stage.reports() == {}


@pytest.mark.anyio
async def test_the_label_noise_of_the_version_is_part_of_the_bound() -> None:
    async with scene() as (stage, write_id):
        noisy = (drawn(i, write_id=write_id, label_noise=0.1) for i in range(40))
        await stage.append(*noisy, *(labelled(i, WRONG if i % 5 == 0 else "A") for i in range(40)))
        found = await stage.report()
        assert found.bound == pytest.approx(0.1 + 0.8 * 0.1)
        assert found.figures == monitor([i % 5 == 0 for i in range(40)], alpha=0.1, label_noise=0.1)


@pytest.mark.anyio
async def test_a_replica_that_starts_anew_says_the_same() -> None:
    async with scene() as (stage, write_id):
        await stage.append(*(drawn(i, write_id=write_id) for i in range(50)))
        await stage.append(*(labelled(i, WRONG if i % 3 == 0 else "A") for i in range(45)))
        other = Scene(stage.services)
        await other.auditor.catch_up()
        assert await other.reports() == await stage.reports()


@pytest.mark.anyio
@pytest.mark.parametrize("on_alarm", get_args(OnAlarm))
async def test_a_criterion_with_an_alarm_is_suspended_until_a_new_version(
    on_alarm: OnAlarm,
) -> None:
    async with scene(on_alarm=on_alarm) as (stage, write_id):
        strict = MARGINAL._replace(alpha=0.05)
        await stage.append(
            *(drawn(i, write_id=write_id) for i in range(30)),
            *(drawn(i, write_id=write_id, criterion=strict) for i in range(30, 60)),
            *(labelled(i, WRONG if i < 30 else "A") for i in range(60)),
        )
        calibration = await stage.services.calibrations.get("default")
        criteria = [Criterion(*key, "default") for key in (MARGINAL, strict, PAC)]
        asked = [(each, calibration) for each in criteria]
        # The first judgment does not wait for `follow`.
        found = await stage.fresh_monitor(on_alarm=on_alarm).suspended(asked)
        assert found == ({criteria[0]} if on_alarm == "abstain" else set())
        assert await stage.monitor.suspended(asked) == found
        calibration = await calibrate(stage.services, n=5, seed=7)
        assert not await stage.monitor.suspended([(each, calibration) for each in criteria])


@pytest.mark.anyio
async def test_a_replaced_log_is_computed_anew() -> None:
    async with scene() as (stage, write_id):
        await stage.append(*(drawn(i, write_id=write_id) for i in range(30)))
        await stage.append(*(labelled(i, WRONG) for i in range(30)))
        assert (await stage.report()).figures.alarm
        empty: Callable[[], MemoryStore] = MemoryStore
        stage.auditor._store = empty()
        await stage.auditor.catch_up()
        assert await stage.reports() == {}


@pytest.mark.anyio
async def test_the_twenty_criteria_with_the_most_labels_have_gauges() -> None:
    async with scene() as (stage, write_id):
        # The criterion with the number k has k labels.
        keys = [MARGINAL._replace(alpha=0.01 * k) for k in range(1, 26)]
        await stage.append(
            *(
                drawn(i, write_id=write_id, criterion=key)
                for k, key in enumerate(keys, start=1)
                for i in range(k)
            ),
            *(labelled(i, "A") for i in range(25)),
        )
        await stage.reports()
        text, _ = stage.telemetry.exposition()
        families = text_string_to_metric_families(text.decode())
        shown = {
            float(sample.labels["alpha"]): sample.value
            for family in families
            for sample in family.samples
            if sample.name == "scope_monitor_audited"
        }
        assert shown == {key.alpha: k for k, key in enumerate(keys, start=1) if k > 5}
