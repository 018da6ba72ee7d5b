"""The audits of a store stay few: old versions are deleted, and open draws have a limit."""

import time

import pytest

from app.audits import book as book_module
from app.audits.keeping import forget, remove_old_audits
from app.stores.memory import MemoryStore
from tests.serving import services_of
from tests.unit.audits.drawing import EXAMPLES, audits, ids, judged, label, replica, traffic

DAY = 86_400.0


async def test_audits_of_replaced_versions_are_deleted_after_so_many_days() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0, audit_expires_s=14 * DAY) as services:
        await services.calibrator.add("default", EXAMPLES[:30])
        old = await ids(services, traffic(range(4)))
        await label(services.auditor, (old[0], "A"), (old[1], "none"))
        await services.calibrator.add("default", EXAMPLES[30:])
        # Judged by both versions.
        await judged(services, traffic([3]))
        new = await ids(services, traffic(range(10, 12)))
        late = replica(store, seconds_later=91 * DAY)
        await late.open()
        await remove_old_audits(late, store, keep_days=100)
        assert len(audits(late)) == 6
        await remove_old_audits(late, store, keep_days=90)
        assert {audit.id for audit in audits(late)} == {old[3], *new}
        # With them goes the entry that closed one of them, and every replica notices.
        await services.auditor.catch_up()
        for auditor in (late, services.auditor):
            assert {audit.id for audit in audits(auditor)} == {old[3], *new}
            assert auditor.book("default").trail == []
        assert (await store.audit_states())["default"].rows == 3


async def test_audits_of_a_deleted_set_go_with_their_entries_and_open_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The entries of the audits that the first step removes do not fit into it.
    monkeypatch.setattr("app.audits.keeping._STEP", 3)
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        drawn = await ids(services, traffic(range(4)))
        auditor = services.auditor
        for each in ("A", "B"):
            await label(auditor, *((identifier, each) for identifier in drawn[:2]))
        await forget(auditor, "default", in_force=None, older_than=time.time() + 1)
        assert [audit.id for audit in audits(auditor)] == drawn[2:]
        assert auditor.book("default").trail == []


async def test_above_the_limit_of_open_draws_no_more_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(book_module, "MOST_OPEN", 5)
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        drawn = [audit.id for audit in await judged(services, traffic(range(9))) if audit]
        assert len(drawn) == 5
        calibration = await services.calibrations.get("default")
        assert (await services.monitor.of(calibration)).is_full
        text = services.telemetry.exposition()[0].decode()
        assert "scope_audit_draws_refused_total 4.0" in text
        # A label makes room, and a pair that is drawn already needs none.
        await label(services.auditor, (drawn[0], "A"))
        assert not (await services.monitor.of(calibration)).is_full
        assert None not in await judged(services, traffic([20]))
        assert await judged(services, traffic([21])) == [None]
        assert None not in await judged(services, traffic([20]), alpha=0.2)
