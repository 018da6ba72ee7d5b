"""Every version of a set can be restored."""

import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import (
    CalibrationNotFoundError,
    JudgeMismatchError,
    StoreCorruptError,
    VersionNotFoundError,
)
from app.judges.engines.scripted import ScriptedEngine
from app.ports import CalibrationStore, StoredCalibration, StoredChange, Version
from app.stores.memory import MemoryStore
from app.stores.redis import RedisStore
from app.stores.sqlite import SqliteStore
from tests.redis_server import RedisServer
from tests.serving import labelled, services_of
from tests.unit.service.calibration.trails import batch, content, read, trail


@asynccontextmanager
async def on(scheme: str, folder: Path, server: Callable[[], RedisServer]) -> AsyncIterator[Any]:
    """Opens an empty store."""
    store: CalibrationStore = MemoryStore()
    if scheme == "sqlite":
        store = SqliteStore(folder / "sets.db")
    if scheme == "redis":
        store = RedisStore(server().url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "redis"])
async def test_rolling_back_restores_exactly_what_was_there(
    scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def server() -> RedisServer:
        found: RedisServer = request.getfixturevalue("redis_server")
        return found

    async with on(scheme, tmp_path, server) as store, services_of(store=store) as services:
        good = await services.calibrator.add("default", batch(1, 2, 3))
        poison = [labelled(1.0, "B", number=n) for n in (1, 2, 7, 8)]
        await services.calibrator.add("default", poison, by="mallory")
        restored = await services.calibrator.rollback("default", 1, by="admin")
        assert restored.version == 3
        assert content(restored) == content(good.calibration)
        # A replica with an empty cache reads the same.
        async with services_of(store=store) as elsewhere:
            found = await elsewhere.calibrations.get("default")
        assert content(found) == content(restored)
        assert found.write_id == restored.write_id
        newest, *_ = await trail(services)
        assert (newest.action, newest.by, newest.rolled_back_to) == ("rollback", "admin", 1)
        assert (newest.added, newest.updated, newest.removed, newest.n) == (0, 2, 2, 3)
        assert newest.batch_digest is None
        # A rollback can also go forwards, for example to inspect the poisoned version.
        assert (await services.calibrator.rollback("default", 2)).n == 5


async def test_a_rollback_to_the_current_content_changes_nothing() -> None:
    async with services_of() as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrator.add("default", batch(2))
        here = await services.calibrator.rollback("default", 2)
        assert here.version == 2
        assert (await services.calibrator.rollback("default", 1)).version == 3
        # A client that lost the answer repeats its request.
        assert (await services.calibrator.rollback("default", 1)).version == 3
        assert len(await trail(services)) == 3


async def test_a_deleted_set_can_be_restored() -> None:
    async with services_of() as services:
        before = (await services.calibrator.add("default", batch(1, 2))).calibration
        await services.calibrator.delete("default")
        with pytest.raises(VersionNotFoundError, match="deletion"):
            await services.calibrator.rollback("default", 2)
        after = await services.calibrator.rollback("default", 1)
        assert (after.version, content(after)) == (3, content(before))
        await services.calibrator.delete("default")
        await services.calibrator.add("default", batch(9))
        for number in (2, 4):
            with pytest.raises(VersionNotFoundError, match="deletion"):
                await services.calibrator.rollback("default", number)
        again = await services.calibrator.rollback("default", 3)
        assert (again.version, content(again)) == (6, content(before))


async def test_a_version_is_restored_however_old_it_is() -> None:
    async with services_of() as services:
        was = {}
        for number in range(1, 41):
            added = await services.calibrator.add("default", batch(number, number + 1))
            was[number] = content(added.calibration)
        # These versions are on different pages of the trail.
        for number in (24, 25, 23, 8, 9, 1, 40):
            assert content(await services.calibrator.rollback("default", number)) == was[number]


async def test_a_version_that_never_was_is_not_found() -> None:
    async with services_of() as services:
        with pytest.raises(CalibrationNotFoundError):
            await services.calibrator.rollback("default", 1)
        await services.calibrator.add("default", batch(1))
        for number in (2, 99):
            with pytest.raises(VersionNotFoundError, match="no version"):
                await services.calibrator.rollback("default", number)
        assert len(await trail(services)) == 1


async def test_a_version_of_another_judge_is_refused_and_an_own_one_is_restored() -> None:
    store = MemoryStore()
    async with (
        services_of(ScriptedEngine(judge="one"), store) as one,
        services_of(ScriptedEngine(judge="two"), store) as two,
    ):
        ones = (await one.calibrator.add("default", batch(1))).calibration
        await one.calibrator.delete("default")
        await two.calibrator.add("default", batch(1, 2))
        with pytest.raises(JudgeMismatchError, match="'one'"):
            await two.calibrator.rollback("default", 1)
        assert (await read(store)).version.number == 3
        # The first judge is back, and restores its own set.
        assert content(await one.calibrator.rollback("default", 1)) == content(ones)
        with pytest.raises(JudgeMismatchError, match="'two'"):
            await one.calibrator.rollback("default", 3)
        assert (await two.calibrator.rollback("default", 3)).n == 2


async def test_a_corrupt_set_can_be_deleted_but_not_restored() -> None:
    async with services_of() as services:
        await services.calibrator.add("default", batch(1))
        garbage = StoredCalibration(
            version=Version("x", 2), meta={"judge": "?"}, examples={}, thresholds={}
        )
        mark = StoredChange(number=2, record="{}", undo="{}")
        expected = (await read(services.store)).version
        assert await services.store.write("default", garbage, change=mark, expected=expected)
        await services.calibrator.delete("default", by="admin")
        deletion, *_ = await services.calibrator.versions("default", before=None, limit=1)
        assert (deletion.version, deletion.action, deletion.removed) == (3, "delete", None)
        assert (deletion.judge, deletion.thresholds_before) == (None, None)
        with pytest.raises(VersionNotFoundError, match="no longer"):
            await services.calibrator.rollback("default", 1)
        added = await services.calibrator.add("default", batch(4))
        assert added.calibration.version == 4
        with pytest.raises(VersionNotFoundError, match="change 3"):
            await services.calibrator.rollback("default", 1)


async def test_a_set_without_a_trail_gets_one_with_its_next_change() -> None:
    store = MemoryStore()
    async with services_of(store=store) as services:
        before = (await services.calibrator.add("default", batch(1, 2))).calibration
        store._trails.clear()
        assert await trail(services) == []
        await services.calibrator.add("default", batch(3))
        assert [change.version for change in await trail(services)] == [2]
        assert content(await services.calibrator.rollback("default", 1)) == content(before)
        # The trail no longer leads to version 1 without its oldest entry.
        store._trails["default"].pop(0)
        with pytest.raises(VersionNotFoundError):
            await services.calibrator.rollback("default", 1)


async def test_a_change_without_an_entry_in_the_trail_is_detected() -> None:
    store = MemoryStore()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrator.add("default", batch(2))
        kept = copy.deepcopy(store._trails)
        third = (await services.calibrator.add("default", batch(3))).calibration
        # The older release wrote no trail.
        store._trails = kept
        await services.calibrator.add("default", batch(4))
        assert [change.version for change in await trail(services)] == [4, 2, 1]
        assert content(await services.calibrator.rollback("default", 3)) == content(third)
        with pytest.raises(VersionNotFoundError, match="change 2"):
            await services.calibrator.rollback("default", 1)


@pytest.mark.parametrize(
    ("undo", "error"),
    [
        ("", VersionNotFoundError),
        ("{", StoreCorruptError),
        ("[]", StoreCorruptError),
        ("{}", StoreCorruptError),
        ("[" * 100_000, StoreCorruptError),
        ('{"take": ["absent"]}', StoreCorruptError),
        ('{"put": {"d": [1, 2]}}', StoreCorruptError),
        ('{"put": 3}', StoreCorruptError),
        (f'{{"put": {{"d": [1{"0" * 400}, 2, 0.9, "A"]}}}}', StoreCorruptError),
        ('{"judge": 3}', StoreCorruptError),
        ('{"judge": "\\ud800"}', StoreCorruptError),
        ('{"before": [3, 1]}', StoreCorruptError),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_an_undo_that_was_never_written_is_refused_whole(
    undo: str, error: type[Exception]
) -> None:
    class Tampered(MemoryStore):
        async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
            found = await super().undos(name, before=before, limit=limit)
            newest, changed = max(found), undo
            if undo.startswith('{"'):
                changed = json.dumps({**json.loads(found[newest]), **json.loads(undo)})
            return {**found, newest: changed}

    async with services_of(store=Tampered()) as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrator.add("default", batch(2))
        with pytest.raises(error):
            await services.calibrator.rollback("default", 1)
        assert (await services.calibrations.get("default")).version == 2


@pytest.mark.parametrize("change", ["add", "delete", "rollback"])
async def test_a_concurrent_change_makes_no_version_unknown(change: str) -> None:
    class Busy(MemoryStore):
        """Lets another replica change the set once, before the trail is read."""

        between: Callable[[], Awaitable[Any]] | None = None

        async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
            between, self.between = self.between, None
            if between is not None:
                await between()
            return await super().undos(name, before=before, limit=limit)

    store = Busy()
    async with services_of(store=store) as services, services_of(store=store) as other:
        first = (await services.calibrator.add("default", batch(1))).calibration
        await services.calibrator.add("default", batch(2))
        changes: dict[str, Callable[[], Awaitable[Any]]] = {
            "add": lambda: other.calibrator.add("default", batch(3)),
            "delete": lambda: other.calibrator.delete("default"),
            "rollback": lambda: other.calibrator.rollback("default", 1),
        }
        store.between = changes[change]
        restored = await services.calibrator.rollback("default", 1)
        assert content(restored) == content(first)
        # No version is made if the other replica has already restored version 1.
        assert restored.version == (3 if change == "rollback" else 4)
        store.between = changes["add"]
        with pytest.raises(VersionNotFoundError):
            await services.calibrator.rollback("default", 99)


async def test_a_rollback_does_not_modify_the_cached_set() -> None:
    async with services_of() as services:
        for number in range(1, 6):
            here = (await services.calibrator.add("default", batch(number))).calibration
        before = content(here)
        await services.calibrator.rollback("default", 2)
        assert content(here) == before
