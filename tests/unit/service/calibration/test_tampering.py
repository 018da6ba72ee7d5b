"""A calibration that another program changed or that lost examples is never used."""

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StoreCorruptError, VersionNotFoundError
from app.judging.services import Services
from app.stores.memory import MemoryStore
from app.stores.sqlite import SqliteStore
from tests.serving import labelled, pair, request, services_of

BATCH = [labelled(1.0 if n % 5 else -1.0, "A", number=n) for n in range(120)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "sets.db")
    await store.open()
    yield store
    await store.close()


def by_hand(folder: Path, statement: str) -> None:
    """Changes the file, as another program could do."""
    connection = sqlite3.connect(folder / "sets.db", isolation_level=None)
    assert connection.execute(statement).rowcount > 0
    connection.close()


LOSE_97 = (
    "DELETE FROM example WHERE field IN"
    " (SELECT field FROM example WHERE name = 'default' ORDER BY field LIMIT 97)"
)
TAMPERINGS = (
    LOSE_97,
    "UPDATE example SET value = replace(value, '\"A\"', '\"B\"')",
    "UPDATE meta SET value = '23' WHERE field = 'n'",
)


async def judge(services: Services) -> Any:
    return await services.judge.judge(request(pair(3.0, 0.0), alpha=0.25))


@pytest.mark.parametrize("statement", TAMPERINGS)
async def test_a_set_that_was_tampered_with_gives_no_threshold(
    store: SqliteStore, tmp_path: Path, statement: str
) -> None:
    async with services_of(store=store) as holder, services_of(store=store) as other:
        await holder.calibrator.add("default", BATCH)
        before = await judge(holder)
        by_hand(tmp_path, statement)
        for attempt in (
            judge(other),
            other.calibrations.get("default"),
            other.calibrator.add("default", BATCH[:1]),
            other.calibrator.rollback("default", 1),
        ):
            with pytest.raises(StoreCorruptError, match="changed by another program"):
                await attempt
        # A replica that has cached the set continues to use it.
        after = await judge(holder)
        assert (after.threshold, after.calibration) == (before.threshold, before.calibration)
        assert [each async for each in other.calibrations.readable(["default"])] == []


async def test_a_set_that_was_tampered_with_is_not_rolled_back(
    store: SqliteStore, tmp_path: Path
) -> None:
    async with services_of(store=store) as services:
        await services.calibrator.add("default", BATCH)
        await services.calibrator.add("default", [labelled(1.0, "B", number=500)])
        by_hand(tmp_path, LOSE_97)
        # The unchanged set is in the cache.
        with pytest.raises(StoreCorruptError):
            await services.calibrator.rollback("default", 1)
        assert await store.last_number("default") == 2
        assert (await services.calibrations.get("default")).n == 121


async def test_a_replica_that_has_cached_the_set_saves_it_by_deletion_and_rollback(
    store: SqliteStore, tmp_path: Path
) -> None:
    async with services_of(store=store) as holder, services_of(store=store) as other:
        await holder.calibrator.add("default", BATCH)
        before = await judge(holder)
        by_hand(tmp_path, LOSE_97)
        await holder.calibrator.delete("default")
        await other.calibrator.rollback("default", 1)
        assert (await other.calibrations.get("default")).n == 120
        assert (await judge(other)).threshold == before.threshold


async def test_a_set_that_no_replica_has_cached_is_deleted_and_made_again(
    store: SqliteStore, tmp_path: Path
) -> None:
    async with services_of(store=store) as holder, services_of(store=store) as other:
        await holder.calibrator.add("default", BATCH)
        by_hand(tmp_path, LOSE_97)
        await other.calibrator.delete("default")
        with pytest.raises(VersionNotFoundError, match="no longer"):
            await other.calibrator.rollback("default", 1)
        report = await other.calibrator.add("default", BATCH)
        assert (report.added, report.calibration.n) == (120, 120)
        assert (await judge(other)).calibration.n == 120


async def test_a_trail_that_was_tampered_with_restores_nothing() -> None:
    class Tampered(MemoryStore):
        async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
            found = await super().undos(name, before=before, limit=limit)
            newest = max(found)
            undo = json.loads(found[newest])
            undo["put"] = {digest: [*score[:3], "B"] for digest, score in undo["put"].items()}
            return {**found, newest: json.dumps(undo)}

    async with services_of(store=Tampered()) as services:
        await services.calibrator.add("default", BATCH)
        await services.calibrator.delete("default")
        with pytest.raises(StoreCorruptError, match="does not lead to the version 1"):
            await services.calibrator.rollback("default", 1)
        assert await services.store.version("default") is None
