"""Alarms of the audits: each one rings once, ends with a trace, and survives a restart."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.audits.auditor import Auditor
from app.audits.entries import (
    AuditLabel,
    LabelEntry,
    TrailEntry,
    written,
)
from app.audits.monitor import Monitor
from app.core.calibration import Calibration
from app.core.errors import StoreUnavailableError
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.ports import RowsChange
from app.stores.memory import MemoryStore
from scope_judge.records import MonitoredCriterion
from tests.serving import services_of
from tests.unit.audits.judged import calibrate
from tests.unit.audits.logs import EXPIRES_S, MARGINAL, append, draw_id, drawn

WRONG: AuditLabel = "B"


class Replica:
    """One replica of a service: a log, a monitor and a clock of its own, and a common store."""

    def __init__(self, services: Services, *, now: float = 1000.0) -> None:
        self.services = services
        self.now = now
        telemetry = Telemetry.on_own_registry()
        self.auditor = Auditor(
            services.store,
            telemetry,
            fingerprint="f" * 64,
            rate=1.0,
            expires_s=EXPIRES_S,
            now=lambda: self.now,
        )
        self.monitor = Monitor(
            self.auditor,
            services.calibrations,
            telemetry,
            on_alarm="abstain",
        )

    async def draw(self, numbers: Sequence[int], **fields: Any) -> None:
        calibration = await self.set
        given: dict[str, Any] = {
            "write_id": calibration.write_id,
            "version": calibration.version,
            "at": 900.0,
            **fields,
        }
        entries = [drawn(i, **given) for i in numbers]
        await append(self.services.store, *entries)

    async def label(self, numbers: Sequence[int], label: AuditLabel, *, by: str = "ana") -> None:
        reason = "no text" if label == "none" else None
        labels = [
            LabelEntry(id=draw_id(i), label=label, by=by, at=self.now, reason=reason)
            for i in numbers
        ]
        await self.auditor.label(labels, may_use=bool)

    async def shown(self) -> MonitoredCriterion:
        """The figures of the only criterion, as callers see them."""
        (only,) = (await self.monitor.of(await self.set)).criteria
        return only.shown

    @property
    async def set(self) -> Calibration:
        return await self.services.calibrations.get("default")

    async def look(self) -> bool:
        """Whether judgments under the criterion abstain, after the monitor has looked."""
        calibration = await self.set
        await self.auditor.catch_up()
        await self.monitor.of(calibration)
        return bool(await self.monitor.suspended([(MARGINAL, calibration)]))

    async def page(self, name: str, before: int | None, limit: int) -> list[TrailEntry]:
        await self.auditor.catch_up()
        return self.auditor.book(name).page_of_trail(before, limit)

    async def trail(self) -> list[tuple[object, ...]]:
        """Kind, key, time and meaning of each entry, oldest first."""
        found = list[tuple[object, ...]]()
        meaning: tuple[object, ...]
        for each in reversed(await self.page("default", None, 100)):
            meaning = each.before, each.after
            if each.event == "alarm":
                meaning = each.errors, each.audited
            elif each.id is None:
                meaning = each.version, each.reason
            found.append((each.event, each.by, each.at, *meaning))
        return found


@asynccontextmanager
async def rung(count: int = 30) -> AsyncIterator[Replica]:
    """A replica whose set raised an alarm at 1000 s, after a wrong label for each of its draws."""
    async with services_of() as services:
        await calibrate(services, n=50)
        replica = Replica(services)
        await replica.draw(range(count))
        await replica.label(range(count), WRONG)
        assert await replica.look()
        yield replica


async def test_no_correction_of_labels_ends_an_alarm_and_each_one_leaves_a_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rung() as replica:
        replica.now = 1500.0
        await replica.label(range(20), "tie", by="eve")
        await replica.label([20], "none", by="eve")
        assert await replica.look()
        found = await replica.shown()
        assert (found.evidence > 40.0, found.alarm, found.rang_at) == (True, True, written(1000.0))
        await replica.label(range(20, 30), "A", by="eve")
        assert await replica.look()
        found = await replica.shown()
        assert (found.errors, found.alarm, found.rang_at) == (0, True, written(1000.0))
        assert await replica.trail() == [
            ("alarm", "ana", written(1000.0), 30, 30),
            *[("label_changed", "eve", written(1500.0), "B", "tie")] * 20,
            ("label_changed", "eve", written(1500.0), "B", "none"),
            ("label_changed", "eve", written(1500.0), "none", "A"),
            *[("label_changed", "eve", written(1500.0), "B", "A")] * 9,
        ]
    assert len(re.findall("label changed from B to tie by 'eve'", caplog.text)) == 20
    assert len(re.findall("alarm: audits of calibration 'default'", caplog.text)) == 1


async def test_resuming_with_a_reason_ends_an_alarm_and_begins_the_audits_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rung() as replica:
        replica.now = 2000.0
        (ended,) = await replica.monitor.resume(await replica.set, reason="typing errors", by="bob")
        assert ended.at == written(1000.0)
        assert not await replica.look()
        assert await replica.monitor.resume(await replica.set, reason="again", by="bob") == []
        found = await replica.shown()
        assert (found.audited, found.alarm) == (0, False)
        assert (await replica.trail())[1:] == [
            ("resumed", "bob", written(2000.0), 1, "typing errors")
        ]
        assert "alarm of calibration 'default' under alpha 0.1 (marginal) has ended" in caplog.text
        # A reason is a text of a caller, which no log has.
        assert "typing errors" not in caplog.text
        # The same version rings again if its later verdicts are wrong, too.
        await replica.draw(range(100, 130), at=2001.0)
        await replica.label(range(100, 130), WRONG, by="cyd")
        assert await replica.look()
        assert (await replica.trail())[2:] == [("alarm", "cyd", written(2000.0), 30, 30)]


async def test_a_version_ends_an_alarm_once_half_of_its_examples_are_newer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rung() as replica:
        for added, suspended in ((1, True), (48, True), (1, False)):
            await calibrate(replica.services, n=added, seed=added)
            replica.now += 1.0
            assert await replica.look() == suspended
            calibration = await replica.set
            # A criterion without draws by the new version shows its alarm as well.
            report = await replica.monitor.of(calibration)
            assert [each.shown.rang_at for each in report.criteria] == (
                [written(1000.0)] if suspended else []
            )
        assert (await replica.trail())[1:] == [("alarm_ended", "service", written(1003.0), 4, None)]


async def test_a_replica_that_has_not_read_the_newest_version_raises_no_ended_alarm() -> None:
    async with rung() as replica:
        alarmed = await replica.set
        await calibrate(replica.services, n=50, seed=1)
        assert not await replica.look()
        other = Replica(replica.services)
        await other.auditor.catch_up()
        await other.monitor.of(alarmed)
        assert [kind for kind, *_ in await other.trail()] == ["alarm", "alarm_ended"]


async def test_a_version_that_is_taken_back_or_deleted_and_made_again_ends_no_alarm() -> None:
    async with rung() as replica:
        calibrator = replica.services.calibrator
        await calibrate(replica.services, n=10, seed=9)
        await calibrator.rollback("default", 1)
        assert await replica.look()
        await calibrator.delete("default")
        await calibrator.rollback("default", 1)
        assert (await replica.set).n == 50
        assert await replica.look()
        assert len(await replica.trail()) == 1


async def test_an_alarm_that_two_replicas_see_at_once_is_recorded_once() -> None:
    async with services_of() as services:
        await calibrate(services, n=50)
        one, other = Replica(services), Replica(services, now=1001.0)
        await one.draw(range(30))
        await one.label(range(30), WRONG)
        assert all(await asyncio.gather(one.look(), other.look()))
        assert (await one.trail()) == (await other.trail())
        assert len(await one.trail()) == 1
        calibration = await one.set
        await asyncio.gather(
            one.monitor.resume(calibration, reason="first", by="ana"),
            other.monitor.resume(calibration, reason="second", by="bob"),
        )
        assert not any(await asyncio.gather(one.look(), other.look()))
        assert (await one.trail()) == (await other.trail())
        assert len(await one.trail()) == 2


async def test_an_alarm_that_ends_while_a_replica_computes_it_does_not_end_its_monitor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rung() as replica:
        late = Replica(replica.services)
        await late.auditor.catch_up()

        async def slow(call: Any, *given: Any, **named: Any) -> Any:
            monkeypatch.undo()
            found = call(*given, **named)
            await replica.monitor.resume(await replica.set, reason="A wrong guide.", by="bob")
            await late.auditor.catch_up()
            return found

        monkeypatch.setattr("app.audits.monitor.off_loop", slow)
        assert (await late.monitor.of(await late.set)).alarmed
        assert not await late.look()


async def test_an_alarm_that_an_expired_draw_lets_ring_names_no_key() -> None:
    async with services_of() as services:
        await calibrate(services, n=50)
        replica = Replica(services)
        await replica.draw(range(31))
        await replica.label(range(1, 31), WRONG)
        assert not await replica.look()
        replica.now += EXPIRES_S
        assert await replica.look()
        assert await replica.trail() == [("alarm", "service", written(2000.0), 30, 30)]


async def test_an_alarm_is_in_force_while_the_store_takes_no_entries(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services_of() as services:
        await calibrate(services, n=50)
        replica, store = Replica(services), services.store
        assert isinstance(store, MemoryStore)
        await replica.draw(range(30))
        await replica.label(range(30), WRONG)

        async def full(name: str, change: RowsChange) -> int | None:
            raise StoreUnavailableError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(store, "write_audits", full)
            assert await replica.look()
            assert await replica.trail() == []
            assert "alarm: audits of calibration 'default'" in caplog.text
            with pytest.raises(StoreUnavailableError, match="the disk is full"):
                await replica.monitor.resume(await replica.set, reason="labels", by="bob")
        replica.now = 1100.0
        assert await replica.look()
        assert await replica.trail() == [("alarm", "ana", written(1100.0), 30, 30)]


async def test_a_trail_has_pages_and_the_entries_of_its_set_alone() -> None:
    async with rung() as replica:
        await replica.draw([200], calibration="other")
        await replica.label([200], "none")
        await replica.label(range(7), "A")
        whole = await replica.page("default", None, 100)
        assert len(whole) == 8
        pages, before = [], None
        while page := await replica.page("default", before, 3):
            pages += page
            before = page[-1].position
        assert pages == whole
        (only,) = await replica.page("other", None, 3)
        assert (only.before, only.after, only.reason) == (None, "none", "no text")
        # In the order of the id that was labeled.
        mirrored = LabelEntry(id=draw_id(9, mirrored=True), label="B", by="ana", at=1.0)
        await replica.auditor.label([mirrored], may_use=bool)
        (newest,) = await replica.page("default", None, 1)
        assert (newest.before, newest.after) == ("A", "B")
