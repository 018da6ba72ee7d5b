"""The contract of backups: a whole store moves into a file, and from it into any store."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StoreUnavailableError
from app.ports import (
    AuditsPart,
    ChangePart,
    SecretPart,
    SetPart,
    Store,
    StoredChange,
    StorePart,
    Version,
)
from app.service.backup.lines import BackupWriter, check, parts_in
from app.service.backup.walk import entries_in, fill, parts_of
from tests.integration.stores.backends import audit_log, delete, entry, state, store_at, write
from tests.integration.stores.conftest import ALL, Connect
from tests.redis_server import RedisServer

AUDITS = 2345
ODD = 'é裁判🏛\n\\"\0'


@pytest.fixture(params=ALL)
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Another store, which is empty."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        address = f"{server.url.removesuffix('/0')}/1"
    else:
        address = f"{request.param}://{tmp_path / 'source.db'}"
    opened = store_at(address)
    await opened.open()
    yield opened
    await opened.close()


async def fill_by_use(store: Store) -> None:
    """Makes sets with and without examples, deleted and made again, and audits."""
    for number in range(1, 41):
        expected = await store.version("default")
        examples = 5000 if number == 3 else number % 4
        assert await write(store, state(number, examples=examples), expected=expected)
    odd = replace(state(1), meta={ODD: ODD}, examples={"d": ODD}, thresholds={})
    change = replace(entry(1), record=ODD, undo="")
    assert await store.write("odd.name", odd, change=change, expected=None)
    assert await write(store, state(1), expected=None, name="deleted")
    assert await delete(store, name="deleted")
    assert await write(store, state(1), expected=None, name="again")
    assert await delete(store, name="again")
    assert await write(store, state(3, write_id="two"), expected=None, name="again")
    await store.append_audits([f"{ODD} {number}" for number in range(AUDITS)])


async def content(store: Store) -> dict[str, Any]:
    """Everything that a store keeps."""
    return {
        "names": await store.names(),
        "sets": {
            name: (
                await store.read(name),
                await store.changes(name, after=0, limit=10**6),
                await store.records(name, before=None, limit=10**6),
                await store.undos(name, before=None, limit=10**6),
            )
            for name in await store.trails()
        },
        "log": await audit_log(store),
        "secret": await store.secret(),
    }


async def backup_of(store: Store) -> io.BytesIO:
    """The file of a backup."""
    file = io.BytesIO()
    writer = BackupWriter(file, release="1", at="now")
    entries = 0
    async for part in parts_of(store):
        entries += writer.add(part)
    writer.close()
    assert entries == writer.counts.entries
    file.seek(0)
    assert check(file, "file").counts == writer.counts
    file.seek(0)
    return file


async def restored(store: Store, file: io.BytesIO, *, replace: bool = False) -> bool:
    file.seek(0)
    taken: list[StorePart] = []
    done = await fill(store, parts_in(file), replace=replace, on_part=taken.append)
    assert bool(taken) == done
    return done


def staged(server: RedisServer) -> object:
    """The keys that a load has left behind."""
    return server.command("KEYS", "scope:restoring*")


async def test_a_set_and_its_trail_have_a_name_each_and_changes_in_order(store: Store) -> None:
    assert (await store.trails(), await store.changes("default", after=0, limit=9)) == ([], [])
    await fill_by_use(store)
    assert await store.names() == ["again", "default", "odd.name"]
    assert await store.trails() == ["again", "default", "deleted", "odd.name"]
    assert await store.changes("default", after=38, limit=9) == [entry(39), entry(40)]
    assert await store.changes("default", after=0, limit=2) == [entry(1), entry(2)]
    assert await store.changes("default", after=40, limit=2) == []
    assert [each.number for each in await store.changes("again", after=0, limit=9)] == [1, 2, 3]


async def test_a_restored_store_is_the_same_and_goes_on(store: Store, source: Store) -> None:
    await fill_by_use(source)
    file = await backup_of(source)
    assert check(file, "file").counts.entries == await entries_in(source) == AUDITS + 46
    assert await restored(store, file)
    assert await content(store) == await content(source)
    # The next changes are those that the source would have made.
    for each in (store, source):
        assert await write(each, state(41), expected=Version("one", 40))
        assert await write(each, state(3), expected=None, name="deleted")
        assert await each.append_audits(["next"]) == AUDITS + 1
    assert await content(store) == await content(source)


async def test_an_empty_store_has_no_part_and_gets_no_secret(store: Store) -> None:
    assert [part async for part in parts_of(store)] == []
    assert await entries_in(store) == 0


@pytest.mark.parametrize("kept", ["set", "trail", "audit"])
async def test_a_store_that_is_used_is_filled_only_where_that_is_asked_for(
    store: Store, source: Store, kept: str
) -> None:
    await fill_by_use(source)
    file = await backup_of(source)
    if kept == "audit":
        await store.append_audits([f"own {number}" for number in range(9000)])
    else:
        await write(store, state(7), expected=None, name="own")
    if kept == "trail":
        await delete(store, name="own")
    before = await content(store)
    assert await restored(store, file) is False
    assert await content(store) == before
    assert await restored(store, file, replace=True)
    assert await content(store) == await content(source)
    assert await store.last_number("own") == 0


async def test_a_service_on_the_empty_store_sees_the_whole_backup(
    connect: Connect, source: Store
) -> None:
    """A running service has made a secret, and after a flush it goes on."""
    service, command = await connect(), await connect()
    assert await service.secret() != await source.secret()
    await fill_by_use(source)
    assert await restored(command, await backup_of(source))
    assert await content(service) == await content(source)


async def test_a_backup_without_audits_leaves_the_secret_as_it_is(
    store: Store, source: Store
) -> None:
    await write(source, state(1), expected=None)
    own = await store.secret()
    for replace_all in (False, True):
        assert await restored(store, await backup_of(source), replace=replace_all)
        assert await store.secret() == own


@pytest.mark.parametrize("use", [False, True])
async def test_a_failed_restore_changes_nothing_and_can_be_repeated(
    store: Store, source: Store, use: bool
) -> None:
    await fill_by_use(source)
    if use:
        await write(store, state(1), expected=None, name="own")
        await store.append_audits(["own"])
    file, before = await backup_of(source), await content(store)
    parts = list(parts_in(file))

    def cut(end: int) -> Iterator[StorePart]:
        yield from parts[:end]
        raise EOFError

    for end in (0, 1, len(parts) // 2, len(parts)):
        with pytest.raises(EOFError):
            await fill(store, cut(end), replace=use, on_part=id)
        assert await content(store) == before
    assert await restored(store, file, replace=use)
    assert await content(store) == await content(source)


@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
async def test_a_cancelled_restore_changes_nothing(store: Store, source: Store) -> None:
    await fill_by_use(source)
    file, before = await backup_of(source), await content(store)
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    filling: asyncio.Task[bool]

    def on_part(part: StorePart) -> None:
        if isinstance(part, AuditsPart) and not begun.is_set():
            # The next part is asked for when the task has been cancelled.
            cancelled = asyncio.run_coroutine_threadsafe(cancel(), loop)
            cancelled.result()

    async def cancel() -> None:
        begun.set()
        filling.cancel()
        await asyncio.sleep(0)

    filling = asyncio.ensure_future(fill(store, parts_in(file), replace=False, on_part=on_part))
    with pytest.raises(asyncio.CancelledError):
        await filling
    # Waits for the thread of the store.
    await store.close()
    await store.open()
    assert await content(store) == before


async def test_each_set_of_a_backup_under_load_is_one_version_with_its_trail(
    connect: Connect,
) -> None:
    writer, reader = await connect(), await connect()
    stop = asyncio.Event()

    async def write_on() -> int:
        number = 0
        while not stop.is_set():
            number += 1
            if number % 5:
                expected = await writer.version("default")
                assert await write(writer, state(number, examples=50), expected=expected)
            else:
                assert await delete(writer)
            await writer.append_audits([f"of {number}"] * 3)
            await asyncio.sleep(0)
        return number

    writing = asyncio.create_task(write_on())
    ends = set[int]()
    kinds = set[bool]()
    while len(ends) < 12 or len(kinds) < 2:
        # The store in memory answers without a pause.
        await asyncio.sleep(0)
        before = await reader.last_number("default"), await reader.last_audit()
        parts = []
        async for part in parts_of(reader):
            parts.append(part)
            if len(parts) < 9:
                await asyncio.sleep(0)
        changes = [part.change for part in parts if isinstance(part, ChangePart)]
        states = [part.state for part in parts if isinstance(part, SetPart)]
        entries = [each for part in parts if isinstance(part, AuditsPart) for each in part.entries]
        end = len(changes)
        assert [change.number for change in changes] == list(range(1, end + 1))
        assert [each.version.number for each in states] == ([end] if end % 5 else [])
        assert [position for position, _ in entries] == list(range(1, len(entries) + 1))
        assert (end, len(entries)) >= before
        assert len(entries) >= before[1]
        ends.add(end)
        kinds.add(bool(states))
    stop.set()
    assert await writing > 0


async def test_a_restore_that_another_one_overtakes_changes_nothing(
    redis_server: RedisServer,
) -> None:
    change = ChangePart(name="default", change=StoredChange(number=1, record="r", undo="u"))
    stores = [store_at(redis_server.url) for _ in range(2)]
    for each in stores:
        await each.open()

    def overtaken() -> Iterator[StorePart]:
        yield change
        other = asyncio.run_coroutine_threadsafe(second(), loop)
        assert other.result() is True
        yield SecretPart(secret=bytes(32))

    async def second() -> bool:
        return await fill(stores[1], [change], replace=False, on_part=id)

    loop = asyncio.get_running_loop()
    with pytest.raises(StoreUnavailableError, match="Another restore"):
        await fill(stores[0], overtaken(), replace=False, on_part=id)
    assert await stores[0].changes("default", after=0, limit=9) == [change.change]
    assert staged(redis_server) == []
    for each in stores:
        await each.close()


async def test_a_restore_tells_the_replicas_on_redis(redis_server: RedisServer) -> None:
    told = list[StorePart]()
    store, other = store_at(redis_server.url), store_at(redis_server.url)
    await store.open()
    await other.open()
    names = store.changed_names()  # type: ignore[attr-defined]
    assert await anext(names) is None
    part = SetPart(name="default", state=state(1))
    assert await fill(other, [part], replace=False, on_part=told.append)
    assert await anext(names) == "default"
    assert told == [part]
    await names.aclose()
    await store.close()
    await other.close()
