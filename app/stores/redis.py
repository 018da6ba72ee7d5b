"""A calibration store in Redis: for several replicas, and for programs that read lambda_hat.

Keys of a set, public and documented:

    scope:calibrations                       set: the names of all sets
    scope:calibration:{name}:meta            hash: write_id, version, and the fields of meta,
                                             which app/service/calibration/codec.py describes
    scope:calibration:{name}:examples        hash: digest -> labelled score
    scope:calibration:{name}:thresholds      hash: "guarantee:alpha" -> lambda_hat
    scope:calibration:{name}:trail           stream: `number-0` -> record, one for every change
    scope:calibration:{name}:undo            hash: number -> what takes that change back

    scope:calibration:changed                channel: the name of each set as it changes

Trail and undo outlive the set. A stream takes no entry at or below its last one and changes none,
so `XREVRANGE …:trail + -` is the trail as it was written, and `XREAD` follows it.

A write is one Lua script: Redis runs it alone and logs it whole, so a connection that breaks
anywhere leaves the old state or the new one. redis-py's WATCH is no choice here: when the
connection breaks after EXEC was sent it raises WatchError, which would be reported as "nothing was
written" although everything may have been. For the same reason nothing is retried: a write that
was applied before its answer got lost would find its own version in place and report a conflict.

redis-py packs and parses in Python, which for a set of 300,000 examples takes seconds. So whole
sets and trails go through a client of their own in threads, and only short answers and the channel
through the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

from app.core.errors import StartupError, StoreCorruptError, StoreUnavailableError
from app.ports import LARGEST_NUMBER, StoredCalibration, StoredChange, Version
from app.stores.redis_scripts import (
    DELETE_SCRIPT,
    LAST_NUMBER_SCRIPT,
    READ_SCRIPT,
    WRITE_SCRIPT,
)

T = TypeVar("T")

NAMES_KEY = "scope:calibrations"
CHANGED_CHANNEL = "scope:calibration:changed"
VERSION_FIELDS = ("write_id", "version")

CONNECT_TIMEOUT_S = 2
ANSWER_TIMEOUT_S = 5
# Over the 3 s that a write of 300,000 examples takes on a loaded machine.
BULK_TIMEOUT_S = 20
# As many whole sets at once as calibrating and reading need: each holds one in memory.
_THREADS = 4
# An idle connection is pinged before use: a firewall may have dropped it without a word.
HEALTH_CHECK_INTERVAL_S = 15
# uvloop raises RuntimeError where a connection was reset since it was last used, and redis-py lets
# that through, as it does the ValueError of a reply that is no Redis's. Both close the connection.
_VENDOR_ERRORS = (redis.exceptions.RedisError, OSError, RuntimeError, ValueError)


class SetKeys(NamedTuple):
    """Where one set is."""

    meta: str
    examples: str
    thresholds: str
    trail: str
    undo: str

    @classmethod
    def of(cls, name: str) -> "SetKeys":
        """The keys of the set of this name."""
        return cls(*(f"scope:calibration:{name}:{part}" for part in cls._fields))


class RedisStore:
    """Keeps calibration sets in one Redis server that several replicas may share.

    How durable a write is, is the server's setting: `appendonly yes` and `appendfsync always` for
    a write that survives a power cut. Redis Cluster is not served: a set's keys hash to different
    slots.

    Args:
        url: `redis://`, `rediss://` or `unix://`; options of redis-py may stand in its query.

    Raises:
        StartupError: The URL is none of these.
    """

    def __init__(self, url: str) -> None:
        try:
            self._place = _place(url)
            options: dict[str, Any] = {
                "decode_responses": True,
                "socket_connect_timeout": CONNECT_TIMEOUT_S,
                "health_check_interval": HEALTH_CHECK_INTERVAL_S,
                # With RESP3 redis-py 8 does not look whether an idle connection was closed, and
                # the first call after a restart of the server fails.
                "protocol": 2,
            }
            self._client = redis.asyncio.Redis.from_url(
                url,
                socket_timeout=ANSWER_TIMEOUT_S,
                retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
                **options,
            )
            self._bulk = redis.Redis.from_url(
                url,
                socket_timeout=BULK_TIMEOUT_S,
                retry=redis.retry.Retry(NoBackoff(), 0),
                **options,
            )
        except ValueError:
            # Without the cause: its message may hold a part of the URL, and that the password.
            raise StartupError(
                "SCOPE_STORE_URL is no Redis URL; it looks like redis://:password@host:6379/0,"
                " with the characters / ? # of a password percent-encoded."
            ) from None
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Connects.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        await self.ping()

    async def close(self) -> None:
        """Closes all after the steps that run; safe to call twice or without `open`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        with self._translated():
            self._bulk.close()
            await self._client.aclose()

    async def ping(self) -> None:
        """Returns if a key can be read now."""
        # Not PING: it also answers a user who may not read the keys.
        with self._translated():
            await self._client.exists(NAMES_KEY)

    async def names(self) -> list[str]:
        """The names of all sets, sorted."""
        found = await self._in_thread(lambda bulk: bulk.smembers(NAMES_KEY))
        return sorted(cast("set[str]", found))

    async def version(self, name: str) -> Version | None:
        """The version of a set, with one HMGET; None if there is none."""
        with self._translated():
            found = await self._client.hmget(SetKeys.of(name).meta, VERSION_FIELDS)
        values = cast("list[str | None]", found)
        return _version(name, dict(zip(VERSION_FIELDS, values, strict=True)))

    async def read(self, name: str) -> StoredCalibration | None:
        """One consistent state of a set; None if there is none."""

        def read(bulk: redis.Redis) -> StoredCalibration | None:
            keys = SetKeys.of(name)[:3]
            hashes = cast("list[list[str]]", bulk.eval(READ_SCRIPT, len(keys), *keys))
            meta, examples, thresholds = map(_paired, hashes)
            version = _version(name, meta)
            if version is None:
                return None
            for field in VERSION_FIELDS:
                del meta[field]
            return StoredCalibration(version, meta, examples, thresholds)

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
            False if another version than `expected` is in place, or the trail has this number or
            a later one: nothing was written.

        Raises:
            StoreUnavailableError: Nothing was written, or everything was: when the connection
                breaks under a write, only the version tells which.
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
            False if there is no set, or the number is not after `last_number`.
        """
        keys = (*SetKeys.of(name), NAMES_KEY)
        arguments = (name, str(change.number), change.record, change.undo)
        removed = await self._in_thread(
            lambda bulk: bulk.eval(DELETE_SCRIPT, len(keys), *keys, *arguments)
        )
        return bool(removed)

    async def last_number(self, name: str) -> int:
        """The highest number of any change, or of the set that is there; 0 if none."""
        keys = SetKeys.of(name)
        with self._translated():
            found = await self._client.eval(LAST_NUMBER_SCRIPT, 2, keys.meta, keys.trail)
        version, last = cast("list[str]", found)
        if last and not _is_number(last):
            raise StoreCorruptError(
                f"{keys.trail} has an entry with a number that this service does not give."
                " Something else wrote to it; restore Redis from a backup."
            )
        # A set whose version cannot be read must still be deletable, under a number of the trail's.
        return max((int(text) for text in (version, last) if _is_number(text)), default=0)

    async def records(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Records of the trail, newest first."""
        entries = await self._in_thread(lambda bulk: _newest(bulk, name, before, limit))
        return [fields.get("record", "") for _, fields in entries]

    async def undos(self, name: str, *, before: int | None, limit: int) -> dict[int, str]:
        """How to take changes back, newest first."""

        def undos(bulk: redis.Redis) -> dict[int, str]:
            numbers = [number for number, _ in _newest(bulk, name, before, limit)]
            if not numbers:
                return {}
            found = bulk.hmget(SetKeys.of(name).undo, [str(n) for n in numbers])
            texts = cast("list[str | None]", found)
            return {number: text or "" for number, text in zip(numbers, texts, strict=True)}

        return await self._in_thread(undos)

    async def changed_names(self) -> AsyncGenerator[str | None]:
        """Names of sets as they change, from the channel; None once it listens."""
        with self._translated():
            async with self._client.pubsub() as channel:
                await channel.subscribe(CHANGED_CHANNEL)
                asked = False
                while True:
                    message = await channel.get_message(timeout=HEALTH_CHECK_INTERVAL_S)
                    if message is None and asked:
                        raise StoreUnavailableError(f"Redis at {self._place} has fallen silent")
                    asked = message is None
                    if message is None:
                        await channel.ping()
                    elif message["type"] == "subscribe":
                        yield None
                    elif message["type"] == "message":
                        yield message["data"]

    async def _in_thread(self, work: Callable[[redis.Redis], T]) -> T:
        """Does `work` in a thread of the store's; a cancelled call leaves it to finish there."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="redis-store")
        with self._translated():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._bulk)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns what redis-py raises into the store's errors; no message of its own gets out."""
        try:
            yield
        except UnicodeDecodeError as exc:
            raise StoreCorruptError(
                f"Redis at {self._place} holds bytes under scope:calibration that are not text."
            ) from exc
        except _VENDOR_ERRORS as exc:
            if str(exc).startswith("WRONGTYPE "):
                raise StoreCorruptError(
                    f"A key of the calibration sets in Redis at {self._place} has another type."
                    " Something else writes keys under scope:calibration."
                ) from exc
            raise StoreUnavailableError(
                f"Redis at {self._place} does not answer, or refuses ({type(exc).__name__}). Check"
                " that it runs, takes writes and has memory left, and that SCOPE_STORE_URL has the"
                " right password. A write that was under way is whole or was not made."
            ) from exc


def _place(url: str) -> str:
    """Where a Redis URL points, without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    database = parts.path.removeprefix("/")
    if database and not (database.isascii() and database.isdecimal()):
        # redis-py would take database 0, which may be somebody else's.
        raise StartupError("SCOPE_STORE_URL: the database after the / must be a number") from None
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def _version(name: str, meta: Mapping[str, str | None]) -> Version | None:
    """The version in a meta hash; None if the hash is empty."""
    write_id, number = (meta.get(field) for field in VERSION_FIELDS)
    if all(value is None for value in meta.values()):
        return None
    if not write_id or not number or not _is_number(number):
        raise StoreCorruptError(
            f"{SetKeys.of(name).meta} lacks its write_id, or its version is none that this service"
            " writes. Something else wrote to it; delete the calibration and post it again."
        )
    return Version(write_id, int(number))


def _is_number(text: str) -> bool:
    """Whether this is a version's, as it is written."""
    decimal = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_NUMBER))
    return decimal and text[0] != "0" and int(text) <= LARGEST_NUMBER


def _newest(
    bulk: redis.Redis, name: str, before: int | None, limit: int
) -> list[tuple[int, dict[str, str]]]:
    """Number and fields of the trail's entries, newest first."""
    newest = "+" if before is None else str(before - 1)
    found = bulk.xrevrange(SetKeys.of(name).trail, newest, count=limit)
    entries = cast("list[tuple[str, dict[str, str]]]", found)
    return [(int(identifier.partition("-")[0]), fields) for identifier, fields in entries]


def _paired(flat: list[str]) -> dict[str, str]:
    """The hash that a script returns as field, value, field, value, ..."""
    both = iter(flat)
    # One by one: other threads have their turn between two.
    return {field: next(both) for field in both}


def _flat(fields: Mapping[str, str]) -> Iterator[str]:
    """Field, value, field, value, ... as HSET takes them."""
    for field, value in fields.items():
        yield field
        yield value
