"""The cache of calibration sets: fresh while the store answers, usable for a while without it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.core.calibration import Calibration
from app.core.errors import (
    CalibrationNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.judging.services import Services
from app.ports import Head
from app.sets.cache import Calibrations
from app.stores.memory import MemoryStore
from tests.patience import Clock
from tests.serving import calibrations_of, labelled, pair, request, services_of


class FaultyStore(MemoryStore):
    """A store that hangs or fails on request, and counts its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.hangs = False
        self.fails: Exception | None = None

    async def head(self, name: str) -> Head | None:
        self.reads += 1
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise self.fails
        return await super().head(name)


class Replica:
    """The cache of one replica, and another replica that writes to the same store."""

    def __init__(self, writer: Services, calibrations: Calibrations) -> None:
        self.writer = writer
        self.calibrations = calibrations

    async def usable(self, name: str = "default") -> tuple[Calibration, float]:
        return await self.calibrations.usable(name, fingerprint=self.writer.identity.fingerprint)


@asynccontextmanager
async def replica_of(
    store: MemoryStore, clock: Clock, *, max_staleness_s: float = 60.0
) -> AsyncIterator[Replica]:
    async with services_of(store=store) as writer:
        await writer.calibrator.add("default", [labelled(1.0, "A", number=1)])
        calibrations = calibrations_of(store, clock=clock, max_staleness_s=max_staleness_s)
        yield Replica(writer, calibrations)


async def test_a_replica_sees_anothers_version_after_half_a_second_and_not_before() -> None:
    store, clock = MemoryStore(), Clock()
    async with replica_of(store, clock) as replica:
        assert (await replica.usable())[0].version == 1
        await replica.writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        clock.now += 0.499
        assert (await replica.usable())[0].version == 1
        clock.now += 0.001
        seen, age_s = await replica.usable()
        assert (seen.version, seen.n, age_s) == (2, 2, 0.0)
        clock.now += 0.5
        assert (await replica.usable())[0] is seen


async def test_a_hundred_requests_at_once_make_one_read() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        for _ in range(2):
            store.reads = 0
            await asyncio.gather(*(replica.usable() for _ in range(100)))
            assert store.reads == 1
            clock.now += 0.5


async def test_judging_continues_without_the_store_and_shows_the_age_of_its_thresholds() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        known = (await replica.usable())[0]
        store.fails = StoreUnavailableError("gone")
        clock.now += 7.0
        assert await replica.usable() == (known, 7.0)
        clock.now += 53.0
        assert await replica.usable() == (known, 60.0)
        assert replica.calibrations.usable_without_store()
        clock.now += 0.1
        with pytest.raises(StoreUnavailableError, match="SCOPE_MAX_STALENESS_S"):
            await replica.usable()
        assert not replica.calibrations.usable_without_store()


async def test_a_failed_store_is_read_twice_a_second_at_most() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        await replica.usable()
        store.fails = StoreUnavailableError("gone")
        clock.now += 7.0
        store.reads = 0
        for _ in range(100):
            await replica.usable()
        assert store.reads == 1


async def test_a_hanging_store_delays_one_judgment_for_a_moment_and_no_other() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        await replica.usable()
        store.hangs = True
        clock.now += 7.0
        store.reads = 0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert (await replica.usable())[1] == 7.0
        assert loop.time() - begun >= 0.2
        clock.now += 1.0
        for _ in range(100):
            asking = asyncio.ensure_future(replica.usable())
            for _ in range(3):
                await asyncio.sleep(0)
            # The answer did not wait for the store.
            assert asking.done()
            assert asking.result()[1] == 8.0
        assert store.reads == 1


async def test_without_a_calibration_in_memory_nothing_is_judged_while_the_store_is_gone() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        store.fails = StoreUnavailableError("gone")
        with pytest.raises(StoreUnavailableError, match="gone"):
            await replica.usable()
        assert not replica.calibrations.usable_without_store()
        store.fails = None
        assert (await replica.usable())[0].version == 1


async def test_a_deleted_or_corrupt_set_is_not_used_from_memory() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        await replica.usable()
        clock.now += 0.5
        store.fails = StoreCorruptError("not ours")
        with pytest.raises(StoreCorruptError):
            await replica.usable()
        store.fails = None
        await replica.writer.calibrator.delete("default")
        with pytest.raises(CalibrationNotFoundError):
            await replica.usable()


async def test_a_cancelled_request_does_not_cancel_the_read_of_others() -> None:
    store, clock = FaultyStore(), Clock()
    async with replica_of(store, clock) as replica:
        leaving = asyncio.ensure_future(replica.usable())
        staying = asyncio.ensure_future(replica.usable())
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await staying)[0].version == 1


async def test_a_read_that_began_before_a_deletion_is_no_answer_after_it() -> None:
    class SlowStore(MemoryStore):
        """Answers late, with the version at the time of the call."""

        slow = False

        async def head(self, name: str) -> Head | None:
            found = await super().head(name)
            if self.slow:
                await asyncio.sleep(0.01)
            return found

    store, clock = SlowStore(), Clock()
    async with replica_of(store, clock) as replica:
        calibrations = replica.calibrations
        await replica.usable()
        clock.now += 0.5
        store.slow = True
        asking = asyncio.ensure_future(replica.usable())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        head = await store.head("default")
        deletion = Head("", 2)
        assert await store.write(
            "default", deletion, blob=None, thresholds={}, record="{}", expected=head
        )
        calibrations.forget("default")
        with pytest.raises(CalibrationNotFoundError):
            await replica.usable()
        await asking
        clock.now += 0.5
        with pytest.raises(CalibrationNotFoundError):
            await replica.usable()


async def test_a_late_none_does_not_drop_a_version_that_was_written_meanwhile() -> None:
    class LateStore(MemoryStore):
        """Answers late that there is no set."""

        late = False

        async def head(self, name: str) -> Head | None:
            if self.late:
                await asyncio.sleep(0.01)
                return None
            return await super().head(name)

    store, clock = LateStore(), Clock()
    async with replica_of(store, clock) as replica:
        store.late = True
        asking = asyncio.ensure_future(replica.calibrations.current("default"))
        await asyncio.sleep(0)
        (written,) = replica.writer.calibrations.known()
        replica.calibrations.remember(written)
        assert await asking is None
        assert (await replica.usable())[0] is written


async def test_sets_in_use_and_the_default_set_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Room for ten sets of one pair.
    monkeypatch.setattr("app.sets.cache._MOST_BYTES", 10 * 130_310)
    async with services_of() as services:
        names = ["default", "used", *(f"set-{number}" for number in range(20))]
        for name in names:
            await services.calibrator.add(name, [labelled(1.0, "A", number=1)])
            if name == "used":
                await services.judge.judge(request(pair(1.0, 0.0), calibration=name))
        kept = {each.name for each in services.calibrations.known()}
        assert len(kept) == 10
        assert {"default", "used", "set-19"} <= kept
        # The other sets are read again on demand.
        listed = [each.name async for each in services.calibrations.readable(sorted(names))]
        assert listed == sorted(names)
        assert kept == {each.name for each in services.calibrations.known()}
        usable, _ = await services.calibrations.usable(
            "set-0", fingerprint=services.identity.fingerprint
        )
        assert usable.n == 1
        kept = {each.name for each in services.calibrations.known()}
        assert len(kept) == 10
        assert {"default", "used"} <= kept


async def test_a_set_that_an_emptied_store_has_lost_is_named_until_it_is_back() -> None:
    store, clock = MemoryStore(), Clock()
    async with replica_of(store, clock) as replica:
        await replica.usable()
        kept = store._versions.copy(), store._trails.copy()
        await store.close()
        clock.now += 0.5
        with pytest.raises(StoreCorruptError, match="'default' is gone from the store"):
            await replica.usable()
        assert replica.calibrations.lost() == ["default"]
        with pytest.raises(CalibrationNotFoundError):
            await replica.usable("never there")
        assert replica.calibrations.lost() == ["default"]
        # A backup is restored.
        store._versions, store._trails = kept
        await replica.calibrations.refresh()
        assert replica.calibrations.lost() == []
        assert (await replica.usable())[0].version == 1


async def test_a_set_that_another_replica_has_deleted_is_not_lost() -> None:
    store, clock = MemoryStore(), Clock()
    async with replica_of(store, clock) as replica:
        await replica.usable()
        await replica.writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await replica.writer.calibrator.delete("default")
        await replica.calibrations.refresh()
        assert replica.calibrations.lost() == []
        clock.now += 0.5
        with pytest.raises(CalibrationNotFoundError):
            await replica.usable()


@pytest.mark.parametrize("then_deleted", [False, True])
async def test_a_lost_set_that_is_made_again_is_not_lost_any_more(then_deleted: bool) -> None:
    store, clock = MemoryStore(), Clock()
    async with replica_of(store, clock) as replica:
        for number in (2, 3, 4):
            await replica.writer.calibrator.add("default", [labelled(1.0, "A", number=number)])
        await replica.usable()
        await store.close()
        await replica.calibrations.refresh()
        assert replica.calibrations.lost() == ["default"]
        await replica.writer.calibrator.add("default", [labelled(1.0, "A", number=5)])
        if then_deleted:
            await replica.writer.calibrator.delete("default")
        await replica.calibrations.refresh()
        assert replica.calibrations.lost() == []


async def test_a_process_that_has_lost_sets_is_degraded_and_shows_them() -> None:
    store = MemoryStore()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", [labelled(1.0, "A", number=1)])
        assert await services.readiness.check() is None
        trails = store._trails.copy()
        store._trails.clear()
        await services.calibrations.refresh()
        trouble = await services.readiness.check()
        # /readyz needs no key, so it does not name them.
        assert trouble is not None
        assert "lost 1 of the sets" in trouble
        assert "default" not in trouble
        shown = 'scope_calibration_lost{calibration="default"} 1.0'
        assert shown in services.telemetry.exposition()[0].decode()
        store._trails = trails
        await services.calibrations.refresh()
        assert await services.readiness.check() is None
        assert "scope_calibration_lost{" not in services.telemetry.exposition()[0].decode()
