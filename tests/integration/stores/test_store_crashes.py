"""A write that breaks anywhere leaves the old state or the new one; stores reconnect."""

import asyncio
import re
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from app.core.errors import StartupError, StoreCorruptError, StoreUnavailableError
from app.ports import Head, SetStore, Store
from app.stores.redis import RedisStore
from app.stores.redis_scripts import (
    AUDITED_KEY,
    FORMAT,
    FORMAT_KEY,
    SECRET_KEY,
    AuditKeys,
    SetKeys,
)
from app.stores.sqlite import SqliteStore
from app.stores.sqlite_file import APPLICATION_ID, SCHEMA_VERSION
from tests.integration.stores.backends import (
    State,
    delete,
    deleted,
    numbers,
    put_rows,
    read,
    state,
    store_at,
    write,
)
from tests.patience import PATIENCE_S
from tests.proxy import Cut, Proxy
from tests.redis_server import RedisServer

OLD, NEW = state(1), state(2)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of its own, which the test may stop, kill and fill."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    store = store_at(address)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def write_again(store: SetStore) -> State:
    """Writes the next version, and returns the stored state with the head of NEW."""
    while True:
        before = await store.head("default")
        assert before is not None
        after = NEW._replace(head=Head("one", before.number + 1))
        if await write(store, after, expected=before):
            stored = await read(store)
            assert stored is not None
            return stored._replace(head=NEW.head)


async def run_program(module: str, *arguments: str) -> str:
    """Returns the output of a Python program."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()
    assert program.returncode == 0
    return printed.decode()


@pytest.mark.parametrize("action", ["write", "delete"])
async def test_a_crash_at_any_statement_leaves_sqlite_whole(tmp_path: Path, action: str) -> None:
    async with opened(f"sqlite://{tmp_path / 'old.db'}") as store:
        await write(store, OLD, expected=None)
    last = int(await run_program("tests.integration.stores.sqlite_crashes", str(tmp_path), action))
    # A write has at least BEGIN, a read, the rows of trail, version and 2 thresholds, 2 deletions
    # and COMMIT. A deletion has BEGIN, a read, the row of the trail, 2 deletions, COMMIT.
    assert last > (8 if action == "write" else 5)
    for step in range(1, last + 1):
        async with opened(f"sqlite://{tmp_path / f'{step}.db'}") as store:
            changed = NEW if action == "write" else None
            assert await read(store) == (changed if step == last else OLD)
            assert await numbers(store) == ([1, 2] if step == last else [1])
            assert await write_again(store) == NEW


async def test_a_crash_at_any_statement_of_making_the_tables_leaves_a_usable_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "old.db").touch()
    last = int(await run_program("tests.integration.stores.sqlite_crashes", str(tmp_path), "open"))
    # At least 4 queries, 7 tables, application and version, BEGIN and COMMIT.
    assert last > 14
    for step in range(1, last + 1):
        async with opened(f"sqlite://{tmp_path / f'{step}.db'}") as store:
            assert await write(store, OLD, expected=None)
            assert await numbers(store) == [1]
            assert await put_rows(store, {"key": "x"}) == 1


async def _change_through(
    server: RedisServer, cut: Cut, action: str
) -> tuple[bytes, bytes, bool | None]:
    """Returns bytes sent, bytes answered, and the outcome: None if the store was unavailable."""
    async with Proxy(server.port, cut) as proxy:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}/0")
        outcome: bool | None = None
        try:
            if action == "write":
                outcome = await write(store, NEW, expected=OLD.head)
            else:
                outcome = await deleted(store, OLD.head)
        except StoreUnavailableError:
            pass
        finally:
            await store.close()
    return bytes(proxy.sent), bytes(proxy.answered), outcome


@pytest.mark.parametrize("action", ["write", "delete"])
async def test_a_cut_connection_leaves_redis_whole(redis_server: RedisServer, action: str) -> None:
    changed = NEW if action == "write" else None
    async with opened(redis_server.url) as store:

        async def reset() -> None:
            redis_server.command("FLUSHALL")
            await write(store, OLD, expected=None)

        await reset()
        sent, answered, outcome = await _change_through(redis_server, Cut(), action)
        assert outcome is True
        # Cut around the start of every command, and evenly within the script and its arguments.
        begins = [found.start() for found in re.finditer(rb"\*\d+\r\n\$", sent)]
        edges = {edge + by for edge in (*begins, len(sent)) for by in (-1, 0, 1)}
        sent_cuts = {cut for cut in edges | set(range(0, len(sent), 499)) if 0 <= cut <= len(sent)}
        cuts = [Cut(sent=cut) for cut in sorted(sent_cuts)]
        cuts += [Cut(answered=cut) for cut in range(len(answered))]
        found = set()
        for cut in cuts:
            await reset()
            _, _, outcome = await _change_through(redis_server, cut, action)
            assert outcome is not False, f"{cut}: reported as a conflict"
            stored = await read(store)
            assert stored in (OLD, changed), cut
            assert outcome is None or stored == changed, cut
            assert await numbers(store) == ([1, 2] if stored == changed else [1]), cut
            found.add((outcome, stored == changed))
            assert await write_again(store) == NEW, cut
        # Some cuts came before the change was made, and some after it.
        assert {(None, False), (None, True)} <= found


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_idle_connections_that_were_reset_fail_no_call(
    redis_server: RedisServer, run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    async def use_reset_connections() -> None:
        async with (
            Proxy(redis_server.port) as proxy,
            opened(f"redis://127.0.0.1:{proxy.port}/0") as store,
        ):
            for _ in range(2):
                # Calls at the same time need a connection each; fast ones may follow each other.
                while proxy.connections < 4:
                    await asyncio.gather(*(store.ping() for _ in range(20)))
                await store.names()
                proxy.cut()
                # The event loop learns of a reset a few turns later.
                for _ in range(20):
                    await asyncio.sleep(0.01)

    run(use_reset_connections())


async def test_redis_comes_back_without_a_new_store(own_server: RedisServer) -> None:
    async with opened(own_server.url) as store:
        await write(store, OLD, expected=None)
        own_server.stop()
        for call in (
            store.ping(),
            store.head("default"),
            store.read("default"),
            write(store, NEW, expected=OLD.head),
            deleted(store, OLD.head),
            store.trail("default", before=None, limit=1),
            store.names(),
            store.open(),
        ):
            with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{own_server.port}"):
                await call
        own_server.start()
        assert await read(store) == OLD
        assert await write(store, NEW, expected=OLD.head)


async def test_a_redis_that_is_full_or_read_only_refuses_and_changes_nothing(
    own_server: RedisServer,
) -> None:
    async with opened(own_server.url) as store:
        await write(store, OLD, expected=None)
        for refuse, allow in (
            (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
            (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        ):
            own_server.command(*refuse)
            with pytest.raises(StoreUnavailableError):
                await write(store, NEW, expected=OLD.head)
            with pytest.raises(StoreUnavailableError):
                await write(store, NEW, name="other", expected=None)
            assert await read(store) == OLD
            assert (await numbers(store), await numbers(store, "other")) == ([1], [])
            await store.ping()
            own_server.command(*allow)
            assert await store.names() == ["default"]
        assert await write(store, NEW, expected=OLD.head)
        # A full one still deletes.
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        assert await delete(store) is True
        assert await store.names() == []


async def test_a_redis_that_hangs_is_unavailable(own_server: RedisServer) -> None:
    # On a loaded disk, logging a write can take longer than the timeout of the second client.
    async with opened(own_server.url) as patient:
        await write(patient, OLD, expected=None)
    async with opened(f"{own_server.url}?socket_timeout=0.2") as store:
        own_server.command("CLIENT", "PAUSE", "1500", "ALL")
        with pytest.raises(StoreUnavailableError, match="TimeoutError"):
            await read(store)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    assert await read(store) == OLD
                    break
                except StoreUnavailableError:
                    continue


@pytest.mark.parametrize("key", SetKeys.of("x"))
async def test_a_foreign_redis_key_is_corrupt_and_stops_a_write_whole(
    redis_server: RedisServer, key: str
) -> None:
    redis_server.command("SET", key, "foreign")
    async with opened(redis_server.url) as store:
        if key.endswith(":trail"):
            with pytest.raises(StoreCorruptError):
                await store.read("x")
        with pytest.raises(StoreCorruptError):
            await write(store, OLD, name="x", expected=None)
        # The name is written before the set, and names nothing alone.
        assert redis_server.command("KEYS", "scope:{x}:*") == [key]


@pytest.mark.parametrize(
    ("commands", "ask"),
    [
        ([("XADD", SetKeys.of("x").trail, "9-0", "a", "b")], lambda store: store.head("x")),
        ([("SET", SECRET_KEY, "guess me")], RedisStore.secret),
        (
            [("SADD", AUDITED_KEY, "x"), ("SET", AuditKeys.of("x").position, "3x")],
            RedisStore.audit_states,
        ),
    ],
)
async def test_a_foreign_value_in_a_redis_key_is_corrupt(
    redis_server: RedisServer,
    commands: list[tuple[str, ...]],
    ask: Callable[[RedisStore], Awaitable[object]],
) -> None:
    store = RedisStore(redis_server.url)
    await store.open()
    for command in commands:
        redis_server.command(*command)
    with pytest.raises(StoreCorruptError, match="another program"):
        await ask(store)
    await store.close()


@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
async def test_a_version_that_is_missing_is_corrupt_and_its_set_deletable(
    address: str, tmp_path: Path, scheme: str, request: pytest.FixtureRequest
) -> None:
    async with opened(address) as store:
        await write(store, OLD, expected=None)
        if scheme == "redis":
            request.getfixturevalue("redis_server").command("DEL", "scope:{default}:versions")
        else:
            file = sqlite3.connect(address.removeprefix("sqlite://"), isolation_level=None)
            file.execute("DELETE FROM version")
            file.close()
        with pytest.raises(StoreCorruptError, match=r"missing|lacks"):
            await read(store)
        assert await delete(store) is True
        assert await numbers(store) == [1, 2]


async def test_redis_keys_are_those_that_other_programs_read(redis_server: RedisServer) -> None:
    async with opened(redis_server.url) as store:
        await write(store, OLD, expected=None)
    assert redis_server.command("HGETALL", "scope:{default}:thresholds") == {
        "marginal:0.10": "1",
        "pac:0.10": "-inf",
    }
    assert redis_server.command("HKEYS", "scope:{default}:versions") == ["1"]
    assert redis_server.command("SMEMBERS", "scope:sets") == {"default"}
    entries = redis_server.command("XREVRANGE", "scope:{default}:trail", "+", "-")
    assert entries == [("1-0", {"write_id": "one", "record": "record 1 of one"})]


async def test_a_redis_of_another_format_is_refused_and_an_emptied_one_is_not(
    redis_server: RedisServer,
) -> None:
    async with opened(redis_server.url) as store:
        redis_server.command("FLUSHALL")
        await write(store, OLD, expected=None)
    async with opened(redis_server.url):
        pass
    for command, found in (
        (("SET", FORMAT_KEY, "7"), "the store format '7'"),
        (("DEL", FORMAT_KEY), "no store format"),
    ):
        redis_server.command(*command)
        store = RedisStore(redis_server.url)
        with pytest.raises(StoreCorruptError, match=f"{found}, .*reads the format {FORMAT} only"):
            await store.open()
        await store.close()


async def test_a_redis_error_never_holds_the_password(redis_server: RedisServer) -> None:
    store = RedisStore(f"redis://user:geheim@127.0.0.1:{redis_server.port}/0")
    with pytest.raises(StoreUnavailableError) as raised:
        await store.open()
    await store.close()
    assert "geheim" not in str(raised.value)
    assert f"127.0.0.1:{redis_server.port}" in str(raised.value)
    with pytest.raises(StartupError) as refused:
        RedisStore("redis://:geheim/x@127.0.0.1/0")
    assert "geheim" not in str(refused.value)
    assert refused.value.__suppress_context__


async def test_a_start_with_a_wrong_password_says_that_and_nothing_of_writes(
    tmp_path: Path,
) -> None:
    with RedisServer(tmp_path) as server:
        server.command("ACL", "SETUSER", "reader", "on", ">right", "~other:*", "+@all")
        server.command("CONFIG", "SET", "requirepass", "right")
        place = f"127.0.0.1:{server.port}"
        for credentials, reason in (
            (":wrong@", "refuses the user or the password in SCOPE_STORE_URL"),
            ("nobody:right@", "refuses the user or the password in SCOPE_STORE_URL"),
            ("", "SCOPE_STORE_URL has none"),
            ("reader:right@", "does not let the user of SCOPE_STORE_URL"),
        ):
            store = RedisStore(f"redis://{credentials}{place}/0")
            with pytest.raises(StoreUnavailableError, match=reason) as raised:
                await store.open()
            await store.close()
            assert place in str(raised.value)
            assert "write" not in str(raised.value).lower().replace("write it as", "")
        store = RedisStore(f"redis://:right@{place}/0")
        await store.open()
        await store.close()


async def test_sqlite_without_a_usable_path_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "file" / "calibrations.db"):
        store = SqliteStore(path)
        with pytest.raises(StoreUnavailableError, match=re.escape(str(path))):
            await store.open()
        with pytest.raises(StoreUnavailableError):
            await write(store, OLD, expected=None)
        await store.close()


async def test_a_file_that_is_not_ours_is_corrupt_and_untouched(tmp_path: Path) -> None:
    ours = f"PRAGMA application_id = {APPLICATION_ID}"
    paths = [tmp_path / "text.db"]
    paths[0].write_bytes(b"no database " * 100)
    for name, pragmas in (
        ("foreign-1", "PRAGMA user_version = 1;"),
        ("foreign-2", "PRAGMA user_version = 2;"),
        ("foreign-0", ""),
        *(
            (f"schema-{version}", f"{ours}; PRAGMA user_version = {version};")
            for version in (3, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1)
        ),
    ):
        paths.append(tmp_path / f"{name}.db")
        connection = sqlite3.connect(paths[-1])
        connection.executescript(f"CREATE TABLE revision (x); {pragmas}")
        connection.close()
    for path in paths:
        before = path.read_bytes()
        store = SqliteStore(path)
        with pytest.raises(StoreCorruptError, match=re.escape(str(path))) as raised:
            await store.open()
        await store.close()
        assert path.read_bytes() == before, path
        if path.stem.startswith("schema"):
            assert f"has the store format {path.stem[7:]}, " in raised.value.detail
            assert f"reads the format {SCHEMA_VERSION} only" in raised.value.detail


async def test_a_sqlite_file_locked_by_another_is_unavailable_and_then_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.stores.sqlite_file.BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "calibrations.db"
    async with opened(f"sqlite://{path}") as store:
        await write(store, OLD, expected=None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="SQLITE_BUSY"):
            await write(store, NEW, expected=OLD.head)
        assert await read(store) == OLD
        other.close()
        assert await write(store, NEW, expected=OLD.head)


async def test_a_full_disk_changes_nothing_in_sqlite(tmp_path: Path) -> None:
    # A limit on file sizes makes writes fail like a full disk. The limit of this process is
    # restored at once, and nothing else in this process writes meanwhile.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with opened(f"sqlite://{tmp_path / 'calibrations.db'}") as store:
        await write(store, OLD, expected=None)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
            with pytest.raises(StoreUnavailableError):
                await write(store, state(2, examples=20_000), expected=OLD.head)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert await read(store) == OLD
        assert await write(store, NEW, expected=OLD.head)
