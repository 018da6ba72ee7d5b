"""A store in Redis, for several replicas and for programs that read lambda_hat.

The keys of a set are a public interface:

    scope:calibrations                       set: the names of all sets
    scope:calibration:{name}:meta            hash: write_id, version, and the fields of meta,
                                             which app/service/calibration/codec.py describes
    scope:calibration:{name}:examples        hash: digest -> labeled score
    scope:calibration:{name}:thresholds      hash: "guarantee:alpha" -> lambda_hat
    scope:calibration:{name}:trail           stream: `number-0` -> record of each change
    scope:calibration:{name}:undo            hash: number -> undo of that change

    scope:calibration:changed                channel: the name of each set that changes

    scope:audits                             stream: `position-0` -> entry of the log of audits
    scope:audits:texts                       hash: key of a drawn pair -> its texts
    scope:audits:secret                      string: the secret that draws audits, in hexadecimal

    scope:score:{slot}                       string: a comparison and its score; the key expires

The keys `trail` and `undo` remain after the set is deleted. A stream accepts only entries after its
last one and never changes an entry. So `XREVRANGE …:trail + -` returns the trail as it was written,
and `XREAD` follows the trail.

A write is one Lua script. Redis runs it atomically and logs it completely, so a broken connection
leaves either the old state or the new state. WATCH of redis-py is unsuitable: if the connection
breaks after EXEC was sent, redis-py raises WatchError, which would mean "nothing was written"
although everything may have been written. For the same reason no call is retried: a write that
succeeded before its answer was lost would find its own version and report a conflict.

Whole sets and trails go through a second client in threads, because redis-py packs and parses in
Python, which takes seconds for a set of 300,000 examples. Only short answers and the channel use
the event loop.
"""

import asyncio
import re
import secrets
import ssl
from collections.abc import (
    AsyncGenerator,
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

import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

from app.core.errors import StartupError, StoreCorruptError, StoreUnavailableError
from app.ports import (
    LARGEST_NUMBER,
    MOST_AUDIT_TEXTS,
    NO_TEXTS,
    StoredCalibration,
    StoredChange,
    Version,
)
from app.stores.redis_keys import (
    AUDIT_TEXTS_KEY,
    AUDITS_KEY,
    CHANGED_CHANNEL,
    NAMES_KEY,
    SCORE_PREFIX,
    SECRET_KEY,
    SetKeys,
)
from app.stores.redis_scripts import (
    APPEND_SCRIPT,
    DELETE_SCRIPT,
    LAST_NUMBER_SCRIPT,
    READ_SCRIPT,
    WRITE_SCRIPT,
)

T = TypeVar("T")

VERSION_FIELDS = ("write_id", "version")

CONNECT_TIMEOUT_S = 2
ANSWER_TIMEOUT_S = 5
# A write of 300,000 examples takes 3 s on a loaded machine.
BULK_TIMEOUT_S = 20
# Largest number of whole sets that are read or written at once; each takes memory.
_THREADS = 4
# An idle connection is pinged before use, because a firewall may have dropped it silently.
HEALTH_CHECK_INTERVAL_S = 15
# redis-py passes on two foreign errors: the RuntimeError of uvloop for a connection that was reset
# since its last use, and the ValueError for a reply that is not from Redis. Both close the
# connection.
_VENDOR_ERRORS = (redis.exceptions.RedisError, OSError, RuntimeError, ValueError)
# A draw is one entry. So few arguments are packed on the event loop, because a thread costs more.
_MOST_ON_LOOP = 13


class RedisStore:
    """Keeps calibration sets and audits in one Redis server that several replicas can share.

    The settings of the server determine how durable a write is. A write survives a power cut with
    `appendonly yes` and `appendfsync always`. Redis Cluster is not supported, because the keys of a
    set hash to different slots.

    Args:
        url: URL with the scheme `redis://`, `rediss://` or `unix://`. Its query can have options of
            redis-py.

    Raises:
        StartupError: The URL is malformed.
    """

    def __init__(self, url: str) -> None:
        try:
            self._place = _place(url)
            options: dict[str, Any] = {
                "decode_responses": True,
                "socket_connect_timeout": CONNECT_TIMEOUT_S,
                "health_check_interval": HEALTH_CHECK_INTERVAL_S,
                # With RESP3, redis-py 8 does not check whether an idle connection was closed, so
                # the first call after a restart of the server fails.
                "protocol": 2,
            }
            self._client = redis.asyncio.Redis.from_pool(
                _Pool.from_url(
                    url,
                    socket_timeout=ANSWER_TIMEOUT_S,
                    retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
                    **options,
                )
            )
            self._bulk = redis.Redis.from_url(
                url,
                socket_timeout=BULK_TIMEOUT_S,
                retry=redis.retry.Retry(NoBackoff(), 0),
                **options,
            )
        except ValueError:
            # Without the cause, because its message can contain the password from the URL.
            raise StartupError(
                "SCOPE_STORE_URL is not a Redis URL. Write it as redis://:password@host:6379/0,"
                " and percent-encode the characters / ? # of the password."
            ) from None
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Connects to the server.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        await self.ping()

    async def close(self) -> None:
        """Closes all connections after running calls; safe to call twice or without `open`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        with self._translated():
            self._bulk.close()
            await self._client.aclose()

    async def ping(self) -> None:
        """Returns if the keys can be read now."""
        # Not PING, because Redis answers it even if the user may not read the keys.
        with self._translated():
            await self._client.exists(NAMES_KEY)

    async def names(self) -> list[str]:
        """Returns the names of all sets, sorted."""
        names = await self._in_thread(lambda bulk: bulk.smembers(NAMES_KEY))
        return sorted(cast("set[str]", names))

    async def version(self, name: str) -> Version | None:
        """Returns the version of a set, with one HMGET; None without such a set."""
        with self._translated():
            answer = await self._client.hmget(SetKeys.of(name).meta, VERSION_FIELDS)
        values = cast("list[str | None]", answer)
        return _version(name, dict(zip(VERSION_FIELDS, values, strict=True)))

    async def read(self, name: str) -> StoredCalibration | None:
        """Returns one consistent state of a set; None without such a set."""

        def read(bulk: redis.Redis) -> StoredCalibration | None:
            keys = SetKeys.of(name)[:3]
            hashes = cast("list[list[str]]", bulk.eval(READ_SCRIPT, len(keys), *keys))
            meta, examples, thresholds = map(_paired, hashes)
            version = _version(name, meta)
            if version is None:
                return None
            for field in VERSION_FIELDS:
                del meta[field]
            return StoredCalibration(
                version=version, meta=meta, examples=examples, thresholds=thresholds
            )

        return await self._in_thread(read)

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        change: StoredChange,
        expected: Version | None,
        removed: Collection[str] = (),
    ) -> bool:
        """Replaces meta and thresholds, changes examples and extends the trail, in one step.

        Returns:
            False if the version in place is not `expected`, or the trail already has this number or
            a higher one. Nothing was written then.

        Raises:
            StoreUnavailableError: Nothing was written, or everything was written. If the connection
                broke during the write, only the version in the store shows which.
        """

        def write(bulk: redis.Redis) -> bool:
            meta = {**state.meta, "write_id": state.version.write_id}
            meta["version"] = str(state.version.number)
            arguments = [
                name,
                expected.write_id if expected else "",
                str(expected.number) if expected else "",
                str(change.number),
                change.record,
                change.undo,
                str(2 * len(meta)),
                str(2 * len(state.thresholds)),
                str(len(removed)),
                *_flat(meta),
                *_flat(state.thresholds),
                *removed,
                *_flat(state.examples),
            ]
            keys = (*SetKeys.of(name), NAMES_KEY)
            return bool(bulk.eval(WRITE_SCRIPT, len(keys), *keys, *arguments))

        return await self._in_thread(write)

    async def delete(self, name: str, *, change: StoredChange) -> bool:
        """Removes a set and extends the trail in one step.

        Returns:
            False if there is no set, or the number is not above `last_number`.
        """
        keys = (*SetKeys.of(name), NAMES_KEY)
        arguments = (name, str(change.number), change.record, change.undo)
        removed = await self._in_thread(
            lambda bulk: bulk.eval(DELETE_SCRIPT, len(keys), *keys, *arguments)
        )
        return bool(removed)

    async def last_number(self, name: str) -> int:
        """Returns the highest number of the trail and of the set; 0 if both are absent."""
        keys = SetKeys.of(name)
        with self._translated():
            answer = await self._client.eval(LAST_NUMBER_SCRIPT, 2, keys.meta, keys.trail)
        version, last = cast("list[str]", answer)
        if last and not _is_number(last):
            raise StoreCorruptError(
                f"{keys.trail} has an entry with a number that this service does not use."
                " Another program wrote to it; restore Redis from a backup."
            )
        # A malformed version counts as absent, so that its set can be deleted with the next number
        # of the trail.
        return max((int(text) for text in (version, last) if _is_number(text)), default=0)

    async def records(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Returns the records of a trail, newest first."""
        entries = await self._in_thread(lambda bulk: _newest(bulk, name, before, limit))
        return [fields.get("record", "") for _, fields in entries]

    async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
        """Returns the undos of a trail by the numbers of their changes, newest first."""

        def undos(bulk: redis.Redis) -> dict[int, str]:
            numbers = [number for number, _ in _newest(bulk, name, before, limit)]
            if not numbers:
                return {}
            answer = bulk.hmget(SetKeys.of(name).undo, [str(n) for n in numbers])
            texts = cast("list[str | None]", answer)
            return {number: text or "" for number, text in zip(numbers, texts, strict=True)}

        return await self._in_thread(undos)

    async def trails(self) -> list[str]:
        """Returns the names of all sets and of all trails, sorted."""
        return sorted(await self._in_thread(_trail_names))

    async def changes(self, name: str, *, after: int, limit: int) -> list[StoredChange]:
        """Returns changes with numbers above `after`, oldest first."""
        return await self._in_thread(lambda bulk: _changes(bulk, name, after, limit))

    async def changed_names(self) -> AsyncGenerator[str | None]:
        """Yields None once it is subscribed to the channel, then the names of changed sets."""
        with self._translated():
            async with self._client.pubsub() as channel:
                await channel.subscribe(CHANGED_CHANNEL)
                asked = False
                while True:
                    message = await channel.get_message(timeout=HEALTH_CHECK_INTERVAL_S)
                    if message is None and asked:
                        raise StoreUnavailableError(
                            f"Redis at {self._place} no longer answers the subscription"
                        )
                    asked = message is None
                    if message is None:
                        await channel.ping()
                    elif message["type"] == "subscribe":
                        yield None
                    elif message["type"] == "message":
                        yield message["data"]

    async def secret(self) -> bytes:
        """Returns 32 random bytes, which the first call of all replicas makes."""
        with self._translated():
            if not await self._client.exists(SECRET_KEY):
                await self._client.set(SECRET_KEY, secrets.token_hex(32), nx=True)
            secret = str(await self._client.get(SECRET_KEY))
        if not re.fullmatch("[0-9a-f]{64}", secret):
            raise StoreCorruptError(
                f"{SECRET_KEY} is not a secret that this service makes. Another program wrote to"
                " it; restore Redis from a backup."
            )
        return bytes.fromhex(secret)

    async def put_secret(self, secret: bytes) -> None:
        """Replaces the secret."""
        with self._translated():
            await self._client.set(SECRET_KEY, secret.hex())

    async def append_audits(
        self,
        entries: Sequence[str],
        *,
        synced: bool = True,
        texts: Mapping[str, str] = NO_TEXTS,
        forgotten: Collection[str] = (),
    ) -> int:
        """Appends entries, keeps texts and forgets others in one atomic step.

        The settings of the server determine whether they are on the disk then.

        Returns:
            The position of the last entry.
        """
        sizes = (str(MOST_AUDIT_TEXTS), str(len(entries)), str(len(texts)))
        arguments = (AUDITS_KEY, AUDIT_TEXTS_KEY, *sizes, *entries, *_flat(texts), *forgotten)
        if len(arguments) <= _MOST_ON_LOOP:
            with self._translated():
                last = await self._client.eval(APPEND_SCRIPT, 2, *arguments)
        else:
            last = await self._in_thread(lambda bulk: bulk.eval(APPEND_SCRIPT, 2, *arguments))
        return int(cast("int", last))

    async def audits(self, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Returns position and text of entries after a position, in order."""

        def read(bulk: redis.Redis) -> list[tuple[int, str]]:
            answer = bulk.xrange(AUDITS_KEY, str(after + 1), "+", count=limit)
            entries = cast("list[tuple[str, dict[str, str]]]", answer)
            return [
                (_position(identifier), fields.get("entry", "")) for identifier, fields in entries
            ]

        return await self._in_thread(read)

    async def last_audit(self) -> int:
        """Returns the position of the last entry; 0 for an empty log."""
        with self._translated():
            answer = await self._client.xrevrange(AUDITS_KEY, count=1)
        entries = cast("list[tuple[str, dict[str, str]]]", answer)
        return _position(entries[0][0]) if entries else 0

    async def audit_texts(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns the texts of drawn pairs by their keys."""
        if not keys:
            return {}
        answer = await self._in_thread(lambda bulk: bulk.hmget(AUDIT_TEXTS_KEY, list(keys)))
        texts = cast("list[str | None]", answer)
        return {key: text for key, text in zip(keys, texts, strict=True) if text is not None}

    async def audit_text_keys(self) -> set[str]:
        """Returns the keys of all drawn pairs with texts."""
        keys = await self._in_thread(lambda bulk: bulk.hkeys(AUDIT_TEXTS_KEY))
        return set(cast("list[str]", keys))

    async def forget_audit_texts(self, keys: Collection[str]) -> None:
        """Removes the texts of drawn pairs in one atomic step."""
        if keys:
            await self._in_thread(lambda bulk: bulk.hdel(AUDIT_TEXTS_KEY, *keys))

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        """Returns the texts of slots, with one MGET."""
        if not slots:
            return {}
        keys = [f"{SCORE_PREFIX}{slot}" for slot in slots]
        if len(keys) <= _MOST_ON_LOOP:
            with self._translated():
                answer = await self._client.mget(keys)
        else:
            answer = await self._in_thread(lambda bulk: bulk.mget(keys))
        texts = cast("list[str | None]", answer)
        return {slot: text for slot, text in zip(slots, texts, strict=True) if text is not None}

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        """Puts texts into slots, with keys that expire."""

        def keep(bulk: redis.Redis) -> None:
            with bulk.pipeline(transaction=False) as pipeline:
                for slot, text in scores.items():
                    pipeline.set(f"{SCORE_PREFIX}{slot}", text, ex=seconds)
                pipeline.execute()

        await self._in_thread(keep)

    async def _in_thread(self, work: Callable[[redis.Redis], T]) -> T:
        """Runs `work` in a thread of the store, which finishes it even if the call is cancelled."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="redis-store")
        with self._translated():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._bulk)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates errors of redis-py into errors of the store, without the original messages."""
        try:
            yield
        except UnicodeDecodeError as exc:
            raise StoreCorruptError(
                f"Redis at {self._place} holds bytes of another program under scope:."
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


class _Pool(redis.asyncio.ConnectionPool):
    """A pool that replaces idle connections that were reset.

    redis-py replaces an idle connection that was closed. It overlooks one that was reset, so the
    first call on each of them would fail after the network or a proxy has recovered.
    """

    async def ensure_connection(
        self, connection: redis.asyncio.connection.AbstractConnection
    ) -> None:
        reader = connection._reader
        if reader is not None and reader.exception() is not None:
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)


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


def _is_number(text: str) -> bool:
    """Whether a text is a number of a version or position as this service writes it."""
    decimal = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_NUMBER))
    return decimal and text[0] != "0" and int(text) <= LARGEST_NUMBER


def _version(name: str, meta: Mapping[str, str | None]) -> Version | None:
    """Returns the version in a meta hash; None if the hash is empty."""
    write_id, number = (meta.get(field) for field in VERSION_FIELDS)
    if all(value is None for value in meta.values()):
        return None
    if not write_id or not number or not _is_number(number):
        raise StoreCorruptError(
            f"{SetKeys.of(name).meta} has no write_id, or a version that this service does not"
            " write. Another program wrote to it; delete the calibration and post it again."
        )
    return Version(write_id, int(number))


def _trail_names(bulk: redis.Redis) -> set[str]:
    """Returns the names of all sets, and of deleted sets whose trails remain."""
    before, after = SetKeys.of("*").trail.split("*")
    names = cast("set[str]", bulk.smembers(NAMES_KEY))
    trails = bulk.scan_iter(match=f"{before}*{after}", count=1000)
    return names | {key.removeprefix(before).removesuffix(after) for key in trails}


def _newest(
    bulk: redis.Redis, name: str, before: int | None, limit: int
) -> list[tuple[int, dict[str, str]]]:
    """Returns number and fields of entries of the trail, newest first."""
    newest = "+" if before is None else str(before - 1)
    answer = bulk.xrevrange(SetKeys.of(name).trail, newest, count=limit)
    entries = cast("list[tuple[str, dict[str, str]]]", answer)
    return [(int(identifier.partition("-")[0]), fields) for identifier, fields in entries]


def _changes(bulk: redis.Redis, name: str, after: int, limit: int) -> list[StoredChange]:
    """Returns changes with numbers above `after`, oldest first."""
    found = bulk.xrange(SetKeys.of(name).trail, str(after + 1), "+", count=limit)
    records = {
        identifier.partition("-")[0]: fields.get("record", "")
        for identifier, fields in cast("list[tuple[str, dict[str, str]]]", found)
    }
    undos = cast(
        "list[str | None]", bulk.hmget(SetKeys.of(name).undo, list(records)) if records else []
    )
    return [
        StoredChange(number=int(number), record=record, undo=undo or "")
        for (number, record), undo in zip(records.items(), undos, strict=True)
    ]


def _paired(flat: list[str]) -> dict[str, str]:
    """Returns the hash that a script returned as field, value, field, value, ..."""
    both = iter(flat)
    # One pair at a time, so that other threads can run in between.
    return {field: next(both) for field in both}


def _flat(fields: Mapping[str, str]) -> Iterator[str]:
    """Yields field, value, field, value, ... as arguments of HSET."""
    for field, value in fields.items():
        yield field
        yield value


def _position(identifier: str) -> int:
    """Returns the position in the id of an entry."""
    number, _, sequence = identifier.partition("-")
    if not _is_number(number) or sequence != "0":
        raise StoreCorruptError(
            f"{AUDITS_KEY} has an entry with a position that this service does not use. Another"
            " program wrote to it; restore Redis from a backup."
        )
    return int(number)
