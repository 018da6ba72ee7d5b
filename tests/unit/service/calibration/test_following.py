"""The cache reads new versions when the store announces them, and periodically otherwise."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import StoreUnavailableError
from app.judging.services import Services
from app.ports import StoredCalibration, StoredChange, Version
from app.service.calibration.cache import Calibrations
from app.service.calibration.following import follow
from app.stores.memory import MemoryStore
from tests.patience import until
from tests.serving import calibrations_of, labelled, services_of


class ChangeFeedStore(MemoryStore):
    """A store that announces its changes, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[asyncio.Queue[str | None]] = []
        self.listened = 0
        self.reads = 0
        self.unreadable = False

    async def changed_names(self) -> AsyncGenerator[str | None]:
        self.listened += 1
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.listeners.append(queue)
        yield None
        while (name := await queue.get()) is not None:
            yield name
        raise StoreUnavailableError("announces no more")

    def announce(self, name: str | None) -> None:
        """Announces a change to all subscribers; None ends the subscriptions."""
        for each in self.listeners:
            each.put_nowait(name)

    async def version(self, name: str) -> Version | None:
        self.reads += 1
        if self.unreadable:
            raise StoreUnavailableError("does not answer")
        return await super().version(name)

    async def write(
        self, name: str, state: StoredCalibration, *, change: StoredChange, **given: Any
    ) -> bool:
        written = await super().write(name, state, change=change, **given)
        self.announce(name)
        return written


@asynccontextmanager
async def following(store: ChangeFeedStore) -> AsyncIterator[tuple[Services, Calibrations]]:
    """A writer, and a replica that has cached the set and follows the store."""
    async with services_of(store=store) as writer:
        await writer.calibrator.add("default", [labelled(1.0, "A", number=1)])
        replica = calibrations_of(store, clock=lambda: 0.0)
        await replica.get("default")
        task = asyncio.create_task(follow(replica, store))
        await until(lambda: store.listened == 1)
        try:
            yield writer, replica
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def versions(replica: Calibrations) -> list[int]:
    return [each.version for each in replica.known()]


async def test_an_announced_version_is_cached_at_once() -> None:
    async with following(ChangeFeedStore()) as (writer, replica):
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await until(lambda: versions(replica) == [2])


async def test_a_deleted_set_leaves_memory() -> None:
    store = ChangeFeedStore()
    async with following(store) as (writer, replica):
        await writer.calibrator.delete("default", by="test")
        store.announce("default")
        await until(lambda: versions(replica) == [])


async def test_a_set_that_is_not_cached_is_not_read() -> None:
    store = ChangeFeedStore()
    async with following(store) as (writer, replica):
        await writer.calibrator.add("other", [labelled(1.0, "A", number=2)])
        await writer.calibrator.add("default", [labelled(1.0, "A", number=3)])
        await until(lambda: versions(replica) == [2])
        assert [each.name for each in replica.known()] == ["default"]


async def test_changes_during_an_interrupted_subscription_are_read_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.service.calibration.following._LISTEN_AGAIN_S", 0.05)
    store = ChangeFeedStore()
    async with following(store) as (writer, replica):
        store.announce(None)
        store.listeners.clear()
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await until(lambda: store.listened > 1)
        await until(lambda: versions(replica) == [2])


async def test_following_survives_a_store_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.service.calibration.following._LISTEN_AGAIN_S", 0.01)
    store = ChangeFeedStore()
    async with following(store) as (writer, replica):
        store.unreadable = True
        asked = store.reads
        store.announce("default")
        store.announce(None)
        await until(lambda: store.listened > 1)
        assert store.reads > asked
        store.unreadable = False
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await until(lambda: versions(replica) == [2])


@pytest.mark.parametrize("store", [MemoryStore, ChangeFeedStore])
async def test_unused_sets_are_confirmed_periodically(
    store: type[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.calibration.following._CONFIRM_S", 0.01)
    now, shared = [0.0], store()
    async with services_of(store=shared) as writer:
        await writer.calibrator.add("default", [labelled(1.0, "A", number=1)])
        replica = calibrations_of(shared, clock=lambda: now[0], max_staleness_s=60.0)
        await replica.get("default")
        now[0] = 3600.0
        assert not replica.usable_without_store()
        task = asyncio.create_task(follow(replica, shared))
        await until(replica.usable_without_store)
        # A version without an announcement is found, too.
        stored = await shared.read("default")
        assert stored is not None
        await MemoryStore.write(
            shared,
            "default",
            replace(stored, version=Version("other", 9), examples={}),
            change=StoredChange(number=9, record="", undo=""),
            expected=stored.version,
        )
        await until(lambda: versions(replica) == [9])
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_confirming_the_old_version_does_not_drop_a_new_one() -> None:
    store = MemoryStore()
    async with services_of(store=store) as writer:
        await writer.calibrator.add("default", [labelled(1.0, "A", number=1)])
        replica = calibrations_of(SlowToRead(store))
        await replica.get("default")
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        reading = asyncio.create_task(replica.current("default"))
        await asyncio.sleep(0)
        # Confirm the old version again while the new one is being read.
        replica._known["default"] = (replica.known()[0], 1.0)
        await reading
        assert versions(replica) == [2]


class SlowToRead(MemoryStore):
    """The same sets, but a read takes several turns of the event loop."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.__dict__.update(vars(store))

    async def read(self, name: str) -> StoredCalibration | None:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().read(name)
