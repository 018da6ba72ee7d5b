"""The contract of the stores for folds of the log of audits."""

import asyncio
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.observability.telemetry import Telemetry
from app.ports import AuditsPart, Store
from app.service.auditing.auditor import Auditor
from app.service.auditing.entries import Draw, LabelEntry, readable_entry
from app.service.auditing.ledger import Ledger
from app.service.backup.lines import parts_in
from app.service.backup.walk import fill, parts_of
from tests.integration.stores.backends import store_at
from tests.integration.stores.conftest import Connect
from tests.integration.stores.folding import EXPIRES_S, OLD_DRAWS, prepare, retention_of
from tests.integration.stores.test_backup_contract import backup_of
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

SHARED = ("sqlite", "redis")
TEXTS = [f'{{"é裁判 \\"": {number}}}' for number in range(1, 11)]


async def entries(store: Store) -> list[tuple[int, str]]:
    return await store.audits(after=0, limit=100_000)


async def test_a_fold_removes_runs_of_entries_and_appends_their_summary(connect: Connect) -> None:
    store, other = await connect(), await connect()
    await store.append_audits(TEXTS)
    assert await store.fold_audits([(1, 1), (3, 5), (9, 9)], "é", last=(10, TEXTS[9])) is True
    kept = [(n, TEXTS[n - 1]) for n in (2, 6, 7, 8, 10)] + [(11, "é")]
    for each in (store, other):
        assert await entries(each) == kept
        assert await each.last_audit() == 11
        assert await each.audits(after=2, limit=2) == [(6, TEXTS[5]), (7, TEXTS[6])]
        assert await each.audits(after=3, limit=1) == [(6, TEXTS[5])]
    # Positions are not used again, also if the last entries are gone.
    assert await other.fold_audits([(8, 11)], "second", last=(11, "é")) is True
    assert await store.append_audits(["next"]) == 13
    assert [position for position, _ in await entries(store)] == [2, 6, 7, 12, 13]


@pytest.mark.parametrize(
    "last", [(9, TEXTS[8]), (10, TEXTS[8]), (10, ""), (11, TEXTS[9]), (10, TEXTS[9] + " ")]
)
async def test_a_fold_changes_nothing_unless_the_log_ends_as_it_says(
    store: Store, last: tuple[int, str]
) -> None:
    assert await store.fold_audits([(1, 2)], "x", last=last) is False
    assert await entries(store) == []
    await store.append_audits(TEXTS)
    assert await store.fold_audits([(1, 2)], "x", last=last) is False
    assert await entries(store) == list(enumerate(TEXTS, 1))


async def test_a_fold_of_many_runs_is_one_step(store: Store) -> None:
    await store.append_audits(["entry"] * 20_001)
    runs = [(first, first) for first in range(1, 20_001, 2)]
    assert await store.fold_audits(runs, "x", last=(20_001, "entry")) is True
    assert len(await entries(store)) == 10_002


async def test_of_clients_that_fold_the_same_entries_one_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(5)]
    await clients[0].append_audits(TEXTS)
    won = await asyncio.gather(
        *(
            client.fold_audits([(1, 4)], f"by {number}", last=(10, TEXTS[9]))
            for number, client in enumerate(clients)
        )
    )
    assert sum(won) == 1
    assert (await entries(clients[0]))[-1] == (11, f"by {won.index(True)}")


@pytest.mark.parametrize("scheme", SHARED)
async def test_a_folded_log_outlives_its_client(address: str) -> None:
    first = store_at(address)
    await first.open()
    await first.append_audits(TEXTS)
    await first.fold_audits([(2, 9)], "x", last=(10, TEXTS[9]))
    before = await entries(first)
    await first.close()
    second = store_at(address)
    await second.open()
    assert await entries(second) == before
    assert await second.append_audits(["y"]) == 12
    await second.close()


@pytest.mark.parametrize("scheme", ["sqlite"])
async def test_only_a_fold_can_delete_from_the_file_and_vacuum_frees_its_space(
    address: str, tmp_path: Path
) -> None:
    store, file = store_at(address), tmp_path / "new" / "calibrations.db"
    await store.open()
    await store.append_audits(["x" * 1000] * 2000)
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    full = file.stat().st_size
    assert await store.fold_audits([(1, 1999)], "fold", last=(2000, "x" * 1000))
    with pytest.raises(sqlite3.IntegrityError, match="only grows"):
        connection.execute("DELETE FROM audit")
    # Later entries use the space.
    assert await store.append_audits(["x" * 1000] * 1500) == 3501
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert file.stat().st_size <= full
    assert await store.fold_audits([(2002, 3500)], "fold", last=(3501, "x" * 1000))
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert file.stat().st_size < full / 10
    assert [position for position, _ in await entries(store)] == [2000, 2001, 3501, 3502]
    assert await store.append_audits(["next"]) == 3503
    await store.close()


async def test_a_redis_that_is_full_folds_nothing(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        store = store_at(server.url)
        await store.open()
        await store.append_audits(["x" * 1000] * 3000)
        before = await entries(store)
        server.command("CONFIG", "SET", "maxmemory", "2mb")
        with pytest.raises(StoreUnavailableError):
            await store.fold_audits([(1, 1000)], "fold", last=before[-1])
        assert await entries(store) == before
        await store.close()


async def test_a_backup_of_a_folded_log_is_restored_with_its_gaps(
    store: Store, tmp_path: Path
) -> None:
    await store.append_audits(TEXTS)
    await store.fold_audits([(1, 3), (5, 8)], "fold", last=(10, TEXTS[9]))
    backup = await backup_of(store)
    for address in ("memory://", f"sqlite://{tmp_path / 'restored.db'}"):
        backup.seek(0)
        other = store_at(address)
        await other.open()
        assert await fill(other, parts_in(backup), replace=False, on_part=id)
        assert await entries(other) == await entries(store)
        assert await other.append_audits(["next"]) == 12
        await other.close()


async def test_a_backup_while_a_log_is_folded_has_each_entry_or_its_count(store: Store) -> None:
    await prepare(store)
    stepped = asyncio.Event()
    retention = await retention_of(store, on_fold=stepped.set)
    other, parts = store_at("memory://"), []
    folding: asyncio.Task[int] | None = None
    async for part in parts_of(store):
        parts.append(part)
        if isinstance(part, AuditsPart) and folding is None:
            # Its first step is done before the rest of the log is read.
            folding = asyncio.create_task(retention.run())
            stepped.clear()
            await stepped.wait()
    assert folding is not None
    await folding
    await other.open()
    assert await fill(other, parts, replace=False, on_part=id)
    await _assert_nothing_is_missing(other, list(range(OLD_DRAWS)), [])


@pytest.mark.parametrize("scheme", SHARED)
async def test_a_fold_that_is_killed_at_any_moment_loses_nothing(address: str) -> None:
    rng = random.Random(1)
    store = store_at(address)
    await store.open()
    await prepare(store)
    writer = await _program(address, "write")
    reported = asyncio.create_task(_lines(writer))
    for _ in range(2):
        folder = await _program(address, "fold")
        assert folder.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(rng.randint(1, 6)):
                await folder.stdout.readline()
        await asyncio.sleep(rng.random() / 50)
        folder.send_signal(signal.SIGKILL)
        await folder.communicate()
        await _assert_nothing_is_missing(store, list(range(OLD_DRAWS)), [])
    writer.send_signal(signal.SIGKILL)
    await writer.wait()
    new = [int(line) for line in await reported]
    assert new, "the log has grown all the time"
    ledger = await _assert_nothing_is_missing(store, list(range(OLD_DRAWS)), new)
    assert 0 < sum(count.draws for count in ledger.folds.counts("default")) < OLD_DRAWS
    # The next run finishes the work.
    await (await retention_of(store)).run()
    ledger = await _assert_nothing_is_missing(store, list(range(OLD_DRAWS)), new)
    assert sum(count.draws for count in ledger.folds.counts("default")) == OLD_DRAWS
    await store.close()


async def _program(address: str, task: str) -> asyncio.subprocess.Process:
    module = "tests.integration.stores.folding"
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, address, task, stdout=asyncio.subprocess.PIPE
    )


async def _lines(program: asyncio.subprocess.Process) -> list[str]:
    """Returns the whole lines that a program prints until its end."""
    assert program.stdout is not None
    printed = await program.stdout.read()
    return [line.decode() for line in printed.splitlines(True) if line.endswith(b"\n")]


async def _assert_nothing_is_missing(store: Store, old: list[int], new: list[int]) -> Ledger:
    """Checks that each draw and label is in the log or counted, once; returns a fresh ledger."""
    auditor = Auditor(
        store,
        Telemetry.on_own_registry(),
        fingerprint="f" * 64,
        rate=0.0,
        expires_s=EXPIRES_S,
        now=time.time,
    )
    await auditor.open()
    ledger = auditor.ledger
    left = [audit for audit in ledger.audits() if audit.draw.decider.version == 1]
    counts = ledger.folds.counts("default")
    assert len(left) + sum(count.draws for count in counts) == len(old)
    # Every fourth old draw has a label, and each of these labels is right.
    labelled = sum(audit.label == "A" for audit in left) + sum(count.right for count in counts)
    assert labelled == len([number for number in old if number % 4 == 0])
    assert sum(count.wrong + count.ties + count.abstained for count in counts) == 0
    parsed = [readable_entry(text) for _, text in await entries(store)]
    drawn = {int(entry.id[:30], 16) for entry in parsed if isinstance(entry, Draw)}
    labels = {int(entry.id[:30], 16) for entry in parsed if isinstance(entry, LabelEntry)}
    assert set(new) <= drawn & labels
    return ledger
