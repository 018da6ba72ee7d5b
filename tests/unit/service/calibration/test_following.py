"""New versions are taken in when the store tells of them, and asked for when it does not."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import StoredCalibration, StoredChange, Version
from app.service.calibration.cache import Calibrations
from app.service.calibration.following import follow
from app.service.services import Services
from app.stores.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.serving import calibrations_of, labelled, services_of

META = {"judge": "scripted", "fingerprint": "f" * 64, "label_noise": "0.0", "n": "1"}


class TellingStore(MemoryStore):
    """A store that tells of its changes, until it is made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[asyncio.Queue[str | None]] = []
        self.listened = 0
        self.reads = 0
        self.unreadable = False

    async def changed_names(self) -> AsyncGenerator[str | None]:
        self.listened += 1
        told: asyncio.Queue[str | None] = asyncio.Queue()
        self.listeners.append(told)
        yield None
        while (name := await told.get()) is not None:
            yield name
        raise StoreUnavailableError("tells no more")

    def tell(self, name: str | None) -> None:
        """Tells all that listen of a change; None ends their listening."""
        for each in self.listeners:
            each.put_nowait(name)

    async def version(self, name: str) -> Version | None:
        self.reads += 1
        if self.unreadable:
            raise StoreUnavailableError("does not answer")
        return await super().version(name)

    async def write(
        self, name: str, state: StoredCalibration, *, change: StoredChange, **given: object
    ) -> bool:
        written = await super().write(name, state, change=change, **given)  # type: ignore[arg-type]
        self.tell(name)
        return written


@asynccontextmanager
async def following(store: TellingStore) -> AsyncIterator[tuple[Services, Calibrations]]:
    """A writer, and a replica that has the set in memory and its ear at the store."""
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


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def versions(replica: Calibrations) -> list[int]:
    return [each.version for each in replica.known()]


@pytest.mark.anyio
async def test_a_new_version_is_in_memory_before_anybody_asks_for_it() -> None:
    async with following(TellingStore()) as (writer, replica):
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await until(lambda: versions(replica) == [2])


@pytest.mark.anyio
async def test_a_deleted_set_leaves_memory() -> None:
    store = TellingStore()
    async with following(store) as (writer, replica):
        await writer.calibrator.delete("default", by="test")
        store.tell("default")
        await until(lambda: versions(replica) == [])


@pytest.mark.anyio
async def test_a_set_that_nobody_here_judges_by_is_not_read() -> None:
    store = TellingStore()
    async with following(store) as (writer, replica):
        await writer.calibrator.add("other", [labelled(1.0, "A", number=2)])
        await writer.calibrator.add("default", [labelled(1.0, "A", number=3)])
        await until(lambda: versions(replica) == [2])
        assert [each.name for each in replica.known()] == ["default"]


@pytest.mark.anyio
async def test_what_changed_while_the_store_told_nothing_is_taken_in_when_it_does_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.service.calibration.following._LISTEN_AGAIN_S", 0.05)
    store = TellingStore()
    async with following(store) as (writer, replica):
        store.tell(None)
        store.listeners.clear()
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await until(lambda: store.listened > 1)
        await until(lambda: versions(replica) == [2])


@pytest.mark.anyio
async def test_a_replica_that_follows_outlives_a_store_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.service.calibration.following._LISTEN_AGAIN_S", 0.01)
    store = TellingStore()
    async with following(store) as (writer, replica):
        store.unreadable = True
        asked = store.reads
        store.tell("default")
        store.tell(None)
        await until(lambda: store.listened > 1)
        assert store.reads > asked
        store.unreadable = False
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        await until(lambda: versions(replica) == [2])


@pytest.mark.anyio
@pytest.mark.parametrize("store", [MemoryStore, TellingStore])
async def test_what_nobody_judges_by_is_confirmed_now_and_then(
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
        # A version that no store tells of is found, too.
        await MemoryStore.write(
            shared,
            "default",
            StoredCalibration(Version("other", 9), META, {}, {}),
            change=StoredChange(9, "", ""),
            expected=(await shared.version("default")),
        )
        await until(lambda: versions(replica) == [9])
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.anyio
async def test_a_question_that_was_under_way_before_takes_no_new_version_back() -> None:
    store = MemoryStore()
    async with services_of(store=store) as writer:
        await writer.calibrator.add("default", [labelled(1.0, "A", number=1)])
        replica = calibrations_of(SlowToRead(store))
        await replica.get("default")
        await writer.calibrator.add("default", [labelled(1.0, "A", number=2)])
        told = asyncio.create_task(replica.current("default"))
        await asyncio.sleep(0)
        # Confirms the old version, once more, while the new one is being read.
        replica._known["default"] = (replica.known()[0], 1.0)
        await told
        assert versions(replica) == [2]


class SlowToRead(MemoryStore):
    """The same sets; a read takes a few turns of the event loop."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.__dict__.update(vars(store))

    async def read(self, name: str) -> StoredCalibration | None:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().read(name)
