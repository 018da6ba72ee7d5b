"""The auditor follows the log of its store, through outages and into another log."""

import asyncio

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import AuditState, RowsChange, StoredRow
from app.stores.memory import MemoryStore
from tests.patience import PATIENCE_S, until
from tests.serving import services_of
from tests.unit.audits.drawing import (
    EXAMPLES,
    FlakyStore,
    audits,
    ids,
    judged,
    label,
    replica,
    traffic,
)


async def test_a_store_that_refuses_misses_draws_and_no_judgments() -> None:
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        store.trouble = store.refuse
        assert await judged(services, traffic(range(5))) == [None] * 5
        # Later judgments do not even ask the store that has failed.
        assert await judged(services, traffic(range(5, 8))) == [None] * 3
        assert store.appends == 1
        text = services.telemetry.exposition()[0].decode()
        assert "scope_audit_draws_missed_total 8.0" in text
        assert "scope_audit_draws_total 0.0" in text
        store.trouble = None
        await services.auditor.catch_up()
        assert None not in await judged(services, traffic(range(8)))
        text = services.telemetry.exposition()[0].decode()
        assert "scope_audit_draws_total 8.0" in text


async def test_a_store_that_hangs_holds_a_judgment_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.audits.auditor._PATIENCE_S", 0.01)
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        store.hangs = True
        async with asyncio.timeout(PATIENCE_S):
            assert await judged(services, traffic(range(3))) == [None] * 3
            assert await judged(services, traffic(range(3, 6))) == [None] * 3
        assert store.appends == 1


async def test_a_store_that_is_slow_holds_a_judgment_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.audits.auditor._PATIENCE_S", 0.01)
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        # As if draws of other judgments were written one after the other.
        async with services.auditor._drawing["default"], asyncio.timeout(PATIENCE_S):
            assert await judged(services, traffic([1])) == [None]
        text = services.telemetry.exposition()[0].decode()
        assert "scope_audit_draws_missed_total 1.0" in text
        assert None not in await judged(services, traffic([1]))


async def test_a_full_disk_is_one_line_of_the_log_until_it_takes_draws_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)

        async def full(name: str, change: RowsChange) -> int | None:
            raise StoreUnavailableError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(services.store, "write_audits", full)
            for number in range(3):
                assert await judged(services, traffic([number])) == [None]
                # All reads work.
                await services.auditor.catch_up()
        lines = ("judging continues without draws", "takes draws for audits again")
        assert [caplog.text.count(line) for line in lines] == [1, 0]
        assert await ids(services, traffic([4]))
        await services.auditor.catch_up()
        assert [caplog.text.count(line) for line in lines] == [1, 1]


async def test_following_applies_what_others_write_and_survives_an_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.audits.auditor._FOLLOW_S", 0.001)
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        other = replica(store)
        following = asyncio.create_task(other.follow())
        await ids(services, traffic([1]))
        await until(lambda: len(audits(other)) == 1)
        store.trouble = store.refuse
        await until(lambda: "without draws" in caplog.text)
        store.trouble = None
        await until(lambda: "again" in caplog.text)
        await ids(services, traffic([2]))
        await until(lambda: len(audits(other)) == 2)
        following.cancel()
        assert caplog.text.count("without draws") == 1


async def test_a_restarted_replica_has_the_same_audits() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await ids(services, traffic(range(1200)))
        await label(services.auditor, *((each, "B") for each in found[:700]))
        await services.auditor.catch_up()
        again = replica(store)
        await again.open()
        assert audits(again) == audits(services.auditor)
        books = [auditor.book("default") for auditor in (again, services.auditor)]
        assert books[0].position == books[1].position
        assert [len(book.open(0.0)) for book in books] == [500, 500]


@pytest.mark.parametrize("length", [0, 1, 3, 5])
async def test_another_log_in_the_store_is_noticed(length: int) -> None:
    store, restored = MemoryStore(), MemoryStore()
    expected = list[str]()
    for own, numbers in ((store, range(3)), (restored, range(10, 10 + length))):
        async with services_of(store=own, audit_rate=1.0) as services:
            await services.calibrator.add("default", EXAMPLES)
            expected = await ids(services, traffic(numbers))
    follower = replica(store)
    await follower.open()
    assert len(audits(follower)) == 3
    store._audits, store._positions = restored._audits, restored._positions
    for further in range(2):
        await follower.catch_up()
        assert [each.id for each in audits(follower)] == expected
        state = (await store.audit_states()).get("default", AuditState(0, 0))
        assert follower.book("default").position == state.position
        later = StoredRow(f"later {further}", state.position + 1, '{"kind": "later"}')
        assert await store.write_audits("default", RowsChange(rows=[later])) == state.position
