"""A store in Redis, for several replicas and for programs that read lambda_hat.

The keys of a set are a public interface:

    scope:format                             string: number of the format of all keys
    scope:sets                               set: the names of all sets, also of deleted ones
    scope:{NAME}:trail                       stream: `number-0` -> write_id (empty for a deletion)
                                             and record of each change; the last entry is the head
    scope:{NAME}:versions                    hash: number -> version, which
                                             app/sets/codec.py describes
    scope:{NAME}:thresholds                  hash: "guarantee:alpha" -> lambda_hat

    scope:{name}:audits                      hash: key -> row of the set's audits; with the braces
    scope:{name}:audit_order                 sorted set: key of a row, by its last change
    scope:{name}:audit_texts                 hash: key of a drawn pair -> its texts
    scope:{name}:audit_position              string: position of the last change
    scope:audits:sets                        set: the names of all sets with audits
    scope:audits:secret                      string: the secret that draws audits, in hexadecimal

    scope:score:{slot}                       string: a comparison and its score; the key expires
    scope:debt:{key}                         string: time at which a key has paid back its use

The braces around the name are literal: Redis Cluster keeps the keys of a set on one node, and no
script touches two sets. The name of a set is written before the set, outside the script, so a name
may have no set, but no set lacks its name. The keys `trail` and `versions` remain after the set is
deleted. A stream accepts only entries after its last one and never changes an entry. So
`XREVRANGE scope:{NAME}:trail + -` returns the trail as it was written, and `XREAD` follows it.

A write is one Lua script. Redis runs it atomically and logs it completely, so a broken connection
leaves either the old state or the new state. WATCH of redis-py is unsuitable: if the connection
breaks after EXEC was sent, redis-py raises WatchError, which would mean "nothing was written"
although everything may have been written. For the same reason no call is retried, unless a node of
a cluster says that it has not run it: a write that succeeded before its answer was lost would find
its own version and report a conflict.

All calls run in threads, because redis-py packs and parses in Python.
"""

import asyncio
import secrets
import ssl
import threading
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import redis
import redis.retry
from redis.backoff import NoBackoff

from app.core.errors import StartupError, StoreCorruptError, StoreUnavailableError
from app.ports import (
    KEPT_VERSIONS,
    AuditState,
    Entry,
    Head,
    RowsChange,
    StoredRow,
)
from app.stores.redis_scripts import (
    AUDITED_KEY,
    CHARGE_SCRIPT,
    DEBT_PREFIX,
    FORMAT,
    FORMAT_KEY,
    NAMES_KEY,
    READ_SCRIPT,
    SCORE_PREFIX,
    SECRET_KEY,
    WRITE_AUDITS_SCRIPT,
    WRITE_SCRIPT,
    AuditKeys,
    SetKeys,
)

T = TypeVar("T")
Client = redis.Redis | redis.RedisCluster
# In the scheme of the URL of a cluster.
CLUSTER = "+cluster"

# Identifier and fields of each entry.
_Stream = list[tuple[str, dict[str, str]]]
CONNECT_TIMEOUT_S = 2
# A write of 50,000 examples takes a second on a loaded machine.
ANSWER_TIMEOUT_S = 10
# Calls at once; each whole set among them takes memory.
_THREADS = 8
# An idle connection is pinged before use, because a firewall may have dropped it silently.
HEALTH_CHECK_INTERVAL_S = 15
# redis-py passes on a foreign error: the ValueError for a reply that is not from Redis, which
# closes the connection.
_VENDOR_ERRORS = (
    redis.exceptions.RedisError,
    redis.exceptions.RedisClusterException,
    OSError,
    ValueError,
)


class RedisStore:
    """Keeps calibration sets and audits in a Redis that several replicas can share.

    The settings of the server determine how durable a write is. A write survives a power cut with
    `appendonly yes` and `appendfsync always`.

    Args:
        url: URL with the scheme `redis://`, `rediss://` or `unix://`, or with `redis+cluster://` or
            `rediss+cluster://` the address of any node of a Redis Cluster. Its query can have
            options of redis-py.

    Raises:
        StartupError: The URL is malformed.
    """

    def __init__(self, url: str) -> None:
        self._place = _place(url)
        self._is_cluster = CLUSTER in url.partition("://")[0]
        self._url = url.replace(CLUSTER, "", 1)
        try:
            # Checks the URL; nothing connects yet.
            redis.connection.parse_url(self._url)  # type: ignore[no-untyped-call]
        except ValueError:
            # Without the cause, because its message can contain the password from the URL.
            raise StartupError(
                "SCOPE_STORE_URL is not a Redis URL. Write it as redis://:password@host:6379/0,"
                " and percent-encode the characters / ? # of the password."
            ) from None
        self._client: Client | None = None
        self._opening = threading.Lock()
        # Sets whose names this process has put under `AUDITED_KEY`.
        self._audited = set[str]()
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        found = await self._run(_format)
        if found != str(FORMAT):
            had = "no store format" if found is None else f"the store format {found!r}"
            raise StoreCorruptError(
                f"Redis at {self._place} has {had}, and this release of scope-judge reads the"
                f" format {FORMAT} only. Run the release that wrote its keys under scope:, or set"
                " SCOPE_STORE_URL to another Redis."
            )

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        if self._client is not None:
            self._client.close()
            self._client = None

    async def ping(self) -> None:
        # PING would not do: Redis answers it even if the user may not read the keys.
        await self._run(lambda client: client.exists(NAMES_KEY))

    async def names(self, *, deleted: bool = False) -> list[str]:
        def names(client: Client) -> list[str]:
            known = sorted(cast("set[str]", client.smembers(NAMES_KEY)))
            with client.pipeline(transaction=False) as pipeline:
                for name in known:
                    pipeline.xrevrange(SetKeys.of(name).trail, count=1)
                heads = map(_head, pipeline.execute())
            return [
                name
                for name, head in zip(known, heads, strict=True)
                if head is not None and (deleted or head.write_id)
            ]

        return await self._run(names)

    async def head(self, name: str) -> Head | None:
        key = SetKeys.of(name).trail
        return await self._run(lambda client: _head(client.xrevrange(key, count=1)))

    async def read(self, name: str, number: int | None = None) -> bytes | None:
        keys = SetKeys.of(name)

        def read(client: Client) -> bytes | None:
            if number is not None:
                blob = _undecoded(client, "HGET", keys.versions, number)
                return cast("bytes | None", blob)
            present = _undecoded(client, "EVAL", READ_SCRIPT, 2, keys.trail, keys.versions)
            write_id, blob = cast("tuple[bytes, bytes | None]", present)
            if write_id and blob is None:
                raise StoreCorruptError(
                    f"{keys.versions} lacks the present version. Another program wrote to it;"
                    " delete the calibration and post it again."
                )
            return blob if write_id else None

        return await self._run(read)

    async def write(
        self,
        name: str,
        head: Head,
        *,
        blob: bytes | None,
        thresholds: Mapping[str, str],
        record: str,
        expected: Head | None,
    ) -> bool:
        arguments: tuple[str | bytes, ...] = (
            expected.write_id if expected else "",
            str(expected.number) if expected else "",
            head.write_id,
            str(head.number),
            record,
            blob or b"",
            str(KEPT_VERSIONS),
            *_flat(thresholds),
        )

        def write(client: Client) -> bool:
            # A full server refuses SADD, but must let a set be deleted, whose name it has.
            if blob is not None or expected is None:
                _add_name(client, NAMES_KEY, name)
            keys = SetKeys.of(name)
            return bool(client.eval(WRITE_SCRIPT, len(keys), *keys, *arguments))

        return await self._run(write)

    async def trail(self, name: str, *, before: int | None, limit: int) -> list[Entry]:
        newest = "+" if before is None else str(before - 1)

        def trail(client: Client) -> list[Entry]:
            answer = client.xrevrange(SetKeys.of(name).trail, newest, count=limit)
            return [_entry(*entry) for entry in cast("_Stream", answer)]

        return await self._run(trail)

    async def secret(self) -> bytes:
        def read(client: Client) -> bytes:
            if not client.exists(SECRET_KEY):
                client.set(SECRET_KEY, secrets.token_hex(32), nx=True)
            return bytes.fromhex(str(client.get(SECRET_KEY)))

        return await self._run(read)

    async def put_secret(self, secret: bytes) -> None:
        await self._run(lambda client: client.set(SECRET_KEY, secret.hex()))

    async def audit_states(self) -> dict[str, AuditState]:
        return await self._run(_audit_states)

    async def audits(self, name: str, *, after: int, limit: int) -> list[StoredRow]:
        keys = AuditKeys.of(name)

        def read(client: Client) -> list[StoredRow]:
            answer = client.zrangebyscore(
                keys.order, f"({after}", "+inf", start=0, num=limit, withscores=True
            )
            places = cast("list[tuple[str, float]]", answer)
            if not places:
                return []
            texts = cast("list[str | None]", client.hmget(keys.rows, [key for key, _ in places]))
            # A row that was removed in between has no text any more.
            return [
                StoredRow(key, int(position), text or "")
                for (key, position), text in zip(places, texts, strict=True)
            ]

        return await self._run(read)

    async def write_audits(self, name: str, change: RowsChange) -> int | None:
        expected = change.expected
        arguments = [
            *AuditKeys.of(name),
            *map(str, (len(change.rows), len(change.removed), len(change.texts))),
            *(str(field) for row in change.rows for field in (*row, expected.get(row.key, 0))),
            *(str(field) for key in change.removed for field in (key, expected.get(key, 0))),
            *_flat(change.texts),
            *change.forgotten,
        ]

        def write(client: Client) -> int:
            if change.rows and name not in self._audited:
                # Before the first row: a name without rows does no harm.
                _add_name(client, AUDITED_KEY, name)
                self._audited.add(name)
            before = int(cast("int", client.eval(WRITE_AUDITS_SCRIPT, 4, *arguments)))
            if before == 0 and change.rows:
                # Redis may have been emptied since.
                _add_name(client, AUDITED_KEY, name)
            return before

        before = await self._run(write)
        return None if before < 0 else before

    async def audit_texts(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        if not keys:
            return {}
        place = AuditKeys.of(name).texts
        answer = await self._run(lambda client: client.hmget(place, list(keys)))
        texts = cast("list[str | None]", answer)
        return {key: text for key, text in zip(keys, texts, strict=True) if text is not None}

    async def charge(self, caller: str, cost_s: float, *, most_owed_s: float) -> float | None:
        """Adds a cost to what a caller owes, by the clock of the server."""
        arguments = (f"{DEBT_PREFIX}{caller}", f"{cost_s:.6f}", f"{most_owed_s:.6f}")
        answer = await self._run(lambda client: client.eval(CHARGE_SCRIPT, 1, *arguments))
        return float(cast("str", answer))

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        def read(client: Client) -> list[str | None]:
            with client.pipeline(transaction=False) as pipeline:
                for slot in slots:
                    pipeline.get(f"{SCORE_PREFIX}{slot}")
                return pipeline.execute()

        texts = await self._run(read) if slots else []
        return {slot: text for slot, text in zip(slots, texts, strict=True) if text is not None}

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        def keep(client: Client) -> None:
            with client.pipeline(transaction=False) as pipeline:
                for slot, text in scores.items():
                    pipeline.set(f"{SCORE_PREFIX}{slot}", text, ex=seconds)
                pipeline.execute()

        await self._run(keep)

    async def _run(self, work: Callable[[Client], T]) -> T:
        """Runs `work` in a thread of the store, which finishes it even if the call is cancelled."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="redis-store")
        with self._translated():
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: work(self._connected())
            )

    def _connected(self) -> Client:
        """Returns the client; that of a cluster connects when it is made."""
        with self._opening:
            if self._client is None:
                kind = redis.RedisCluster if self._is_cluster else redis.Redis
                options: dict[str, Any] = {
                    "decode_responses": True,
                    "socket_connect_timeout": CONNECT_TIMEOUT_S,
                    "socket_timeout": ANSWER_TIMEOUT_S,
                    "health_check_interval": HEALTH_CHECK_INTERVAL_S,
                    # With RESP3, redis-py 8 does not check whether an idle connection was closed,
                    # so the first call after a restart of the server fails.
                    "protocol": 2,
                    "retry": redis.retry.Retry(NoBackoff(), 0),
                }
                self._client = kind.from_url(self._url, **options)
            return self._client

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates errors of redis-py into errors of the store, without the original messages."""
        try:
            yield
        except (ValueError, KeyError) as exc:
            raise StoreCorruptError(
                f"Redis at {self._place} holds values of another program under scope:."
                " Stop that program, and restore Redis from a backup."
            ) from exc
        except _VENDOR_ERRORS as exc:
            if str(exc).startswith("WRONGTYPE "):
                raise StoreCorruptError(
                    f"A key of this service in Redis at {self._place} has another type. Another"
                    " program writes keys under scope:; stop it, and restore Redis from a backup."
                ) from exc
            if reason := _certificate_fault(exc):
                raise StoreUnavailableError(
                    f"The certificate of Redis at {self._place} is not accepted ({reason}). If a"
                    " private authority made it, add ?ssl_ca_certs=/path/of/ca.pem to"
                    " SCOPE_STORE_URL."
                ) from exc
            if isinstance(exc, redis.exceptions.AuthenticationError):
                raise StoreUnavailableError(
                    f"Redis at {self._place} refuses the user or the password in SCOPE_STORE_URL,"
                    " or needs one and SCOPE_STORE_URL has none. Write it as"
                    " redis://:PASSWORD@HOST:PORT/0, or redis://USER:PASSWORD@HOST:PORT/0."
                ) from exc
            if isinstance(exc, redis.exceptions.NoPermissionError):
                raise StoreUnavailableError(
                    f"Redis at {self._place} does not let the user of SCOPE_STORE_URL run a command"
                    " or use a key under scope:. Change its rules with ACL SETUSER."
                ) from exc
            raise StoreUnavailableError(
                f"Redis at {self._place} does not answer, or refuses ({type(exc).__name__}). Check"
                " that Redis runs, accepts writes and has free memory, and that SCOPE_STORE_URL is"
                " its address. A write in progress was made completely or not at all."
            ) from exc


def _certificate_fault(exc: BaseException | None) -> str | None:
    """Why TLS refuses the server's certificate; None if something else failed."""
    while exc is not None:
        if isinstance(exc, ssl.SSLCertVerificationError):
            return exc.verify_message
        exc = exc.__cause__ or exc.__context__
    return None


def _place(url: str) -> str:
    """Returns the address in a Redis URL, without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    database = parts.path.removeprefix("/")
    if database and not (database.isascii() and database.isdecimal()):
        # redis-py would silently use database 0, which may belong to another program.
        raise StartupError(
            "SCOPE_STORE_URL: the database after the last / must be a number"
        ) from None
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def _undecoded(client: Client, *command: str | int) -> Any:
    """Runs a command whose answer has bytes that are no text."""
    return client.execute_command(*command, NEVER_DECODE=True)  # type: ignore[no-untyped-call]


def _head(newest: Any) -> Head | None:
    """Returns the head from the answer about the newest entry of a trail."""
    entries = cast("_Stream", newest)
    return _entry(*entries[0]).head if entries else None


def _entry(identifier: str, fields: Mapping[str, str]) -> Entry:
    return Entry(Head(fields["write_id"], int(identifier.partition("-")[0])), fields["record"])


def _format(client: Client) -> str | None:
    """Returns the number of the store's format, which an empty store gets first."""
    # The order matters, because another process may open the same empty store.
    if not any(client.exists(key) for key in (NAMES_KEY, AUDITED_KEY, SECRET_KEY)):
        client.set(FORMAT_KEY, FORMAT, nx=True)
    return cast("str | None", client.get(FORMAT_KEY))


def _add_name(client: Client, key: str, name: str) -> None:
    """Puts the name of a set under a key."""
    # Redis may have been emptied since the start.
    client.set(FORMAT_KEY, FORMAT, nx=True)
    client.sadd(key, name)


def _flat(fields: Mapping[str, str]) -> Iterator[str]:
    """Yields field, value, field, value, ... as arguments of HSET."""
    for field, value in fields.items():
        yield field
        yield value


def _audit_states(client: Client) -> dict[str, AuditState]:
    """Returns the state of each set that has or had audits."""
    names = sorted(cast("set[str]", client.smembers(AUDITED_KEY)))
    if not names:
        return {}
    with client.pipeline(transaction=False) as pipeline:
        for keys in map(AuditKeys.of, names):
            # The position comes first: a row that is written in between is only counted.
            pipeline.get(keys.position)
            pipeline.hlen(keys.rows)
        answers = iter(pipeline.execute())
    states = dict[str, AuditState]()
    for name in names:
        position, rows = next(answers), next(answers)
        if position is not None:
            states[name] = AuditState(int(position), rows)
    return states
