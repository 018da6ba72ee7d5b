"""A calibration store in Redis: for several replicas, and for programs that read lambda_hat.

Keys of a set, public and documented:

    scope:calibrations                       set: the names of all sets
    scope:calibration:{name}:meta            hash: write_id, version, and the fields of meta
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
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.core.errors import StartupError, StoreCorruptError, StoreUnavailableError
from app.ports import Revision, StoredCalibration, Undo, Version

NAMES_KEY = "scope:calibrations"
CHANGED_CHANNEL = "scope:calibration:changed"
VERSION_FIELDS = ("write_id", "version")

CONNECT_TIMEOUT_S = 2
# Over the 1 s that a write of 100,000 examples takes on a loaded machine.
ANSWER_TIMEOUT_S = 5
# An idle connection is pinged before use: a firewall may have dropped it without a word.
HEALTH_CHECK_INTERVAL_S = 15
# uvloop raises RuntimeError where a connection was reset since it was last used, and redis-py lets
# that through, as it does the ValueError of a reply that is no Redis's. Both close the connection.
_VENDOR_ERRORS = (redis.exceptions.RedisError, OSError, RuntimeError, ValueError)

# A script has no rollback, so all that can fail must fail before the first write. A key of another
# type fails at the lengths; a full or read-only server refuses the first write that adds, which is
# therefore XADD and not DEL, and so does a stream whose newest entry somebody has taken out.
# `unpack` takes at most 8,000 values, hence 4,000 a time. Of what is published nothing depends: a
# user who may not publish writes all the same.
WRITE_SCRIPT = """
local meta, examples, thresholds, trail, undo, names = unpack(KEYS)
local name, write_id, version = ARGV[1], ARGV[2], ARGV[3]
local number, record, undoing = ARGV[4], ARGV[5], ARGV[6]
local meta_size, thresholds_size = tonumber(ARGV[7]), tonumber(ARGV[8])
local removed_size = tonumber(ARGV[9])
redis.call('HLEN', examples)
redis.call('HLEN', thresholds)
redis.call('HLEN', undo)
redis.call('SCARD', names)
local current = redis.call('HMGET', meta, 'write_id', 'version')
if (current[1] or '') ~= write_id or (current[2] or '') ~= version then
  return 0
end
local last = redis.call('XREVRANGE', trail, '+', '-', 'COUNT', 1)[1]
if last and tonumber(string.match(last[1], '^%d+')) >= tonumber(number) then
  return 0
end
local first = 10
local function each(command, key, size)
  local last = first + size - 1
  for i = first, last, 4000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 3999, last)))
  end
  first = last + 1
end
redis.call('XADD', trail, number .. '-0', 'record', record)
redis.call('HSET', undo, number, undoing)
redis.call('SADD', names, name)
if not current[1] then
  redis.call('DEL', examples)
end
redis.call('DEL', meta, thresholds)
each('HSET', meta, meta_size)
each('HSET', thresholds, thresholds_size)
each('HDEL', examples, removed_size)
each('HSET', examples, #ARGV - first + 1)
redis.pcall('PUBLISH', 'scope:calibration:changed', name)
return 1
"""

# Scripts, and not MULTI: a server that is full refuses MULTI, even around reads and deletions.
READ_SCRIPT = """
return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]),
        redis.call('HGETALL', KEYS[3])}
"""

LAST_NUMBER_SCRIPT = """
local version = redis.pcall('HGET', KEYS[1], 'version')
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
return {type(version) == 'string' and version or '',
        last and string.match(last[1], '^%d+') or ''}
"""

# HDEL first, of a field that never is: a server that is full lets a script go on once it has
# written, and a deletion must get through there. Then XADD, as it alone can still fail. UNLINK
# frees a large hash in the background.
DELETE_SCRIPT = """
local meta, examples, thresholds, trail, undo, names = unpack(KEYS)
local name, number, record, undoing = unpack(ARGV)
redis.call('SCARD', names)
if redis.call('EXISTS', meta) == 0 then
  return 0
end
local last = redis.call('XREVRANGE', trail, '+', '-', 'COUNT', 1)[1]
local version = redis.pcall('HGET', meta, 'version')
local taken = last and tonumber(string.match(last[1], '^%d+')) or 0
if type(version) == 'string' then
  taken = math.max(taken, tonumber(version) or 0)
end
if taken >= tonumber(number) then
  return 0
end
redis.call('HDEL', undo, '')
redis.call('XADD', trail, number .. '-0', 'record', record)
redis.call('HSET', undo, number, undoing)
redis.call('SREM', names, name)
redis.call('UNLINK', meta, examples, thresholds)
redis.pcall('PUBLISH', 'scope:calibration:changed', name)
return 1
"""


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
            self._client = redis.asyncio.Redis.from_url(
                url,
                decode_responses=True,
                socket_connect_timeout=CONNECT_TIMEOUT_S,
                socket_timeout=ANSWER_TIMEOUT_S,
                health_check_interval=HEALTH_CHECK_INTERVAL_S,
                retry=Retry(NoBackoff(), 0),
                # With RESP3 redis-py 8 does not look whether an idle connection was closed, and
                # the first call after a restart of the server fails.
                protocol=2,
            )
        except ValueError:
            # Without the cause: its message may hold a part of the URL, and that the password.
            raise StartupError(
                "SCOPE_STORE_URL is no Redis URL; it looks like redis://:password@host:6379/0,"
                " with the characters / ? # of a password percent-encoded."
            ) from None

    async def open(self) -> None:
        """Connects.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        await self.ping()

    async def close(self) -> None:
        """Closes every connection; safe to call twice or without `open`."""
        with self._translated():
            await self._client.aclose()

    async def ping(self) -> None:
        """Returns if a key can be read now."""
        # Not PING: it also answers a user who may not read the keys.
        with self._translated():
            await self._client.exists(NAMES_KEY)

    async def names(self) -> list[str]:
        """The names of all sets, sorted."""
        with self._translated():
            return sorted(cast("set[str]", await self._client.smembers(NAMES_KEY)))

    async def version(self, name: str) -> Version | None:
        """The version of a set, with one HMGET; None if there is none."""
        with self._translated():
            found = await self._client.hmget(SetKeys.of(name).meta, VERSION_FIELDS)
        values = cast("list[str | None]", found)
        return _version(name, dict(zip(VERSION_FIELDS, values, strict=True)))

    async def read(self, name: str) -> StoredCalibration | None:
        """One consistent state of a set; None if there is none."""
        keys = SetKeys.of(name)[:3]
        with self._translated():
            hashes = await self._client.eval(READ_SCRIPT, len(keys), *keys)
        meta, examples, thresholds = map(_paired, hashes)
        version = _version(name, meta)
        if version is None:
            return None
        for field in VERSION_FIELDS:
            del meta[field]
        return StoredCalibration(version, meta, examples, thresholds)

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        revision: Revision,
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
        meta = {**state.meta, "write_id": state.version.write_id}
        meta["version"] = str(state.version.number)
        arguments = [
            name,
            expected.write_id if expected else "",
            str(expected.number) if expected else "",
            str(revision.number),
            revision.record,
            revision.undo,
            str(2 * len(meta)),
            str(2 * len(state.thresholds)),
            str(len(removed)),
            *_flat(meta),
            *_flat(state.thresholds),
            *removed,
            *_flat(state.examples),
        ]
        keys = (*SetKeys.of(name), NAMES_KEY)
        with self._translated():
            written = await self._client.eval(WRITE_SCRIPT, len(keys), *keys, *arguments)
        return bool(written)

    async def delete(self, name: str, *, revision: Revision) -> bool:
        """Removes a set and extends the trail in one step.

        Returns:
            False if there is no set, or the number is not after `last_number`.
        """
        keys = (*SetKeys.of(name), NAMES_KEY)
        arguments = (name, str(revision.number), revision.record, revision.undo)
        with self._translated():
            removed = await self._client.eval(DELETE_SCRIPT, len(keys), *keys, *arguments)
        return bool(removed)

    async def last_number(self, name: str) -> int:
        """The highest number of any change, or of the set that is there; 0 if none."""
        keys = SetKeys.of(name)
        with self._translated():
            found = await self._client.eval(LAST_NUMBER_SCRIPT, 2, keys.meta, keys.trail)
        # A set whose version cannot be read must still be deletable, under a number of the trail's.
        return max((int(text) for text in found if _is_number(text)), default=0)

    async def revisions(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Records of the trail, newest first."""
        return [fields.get("record", "") for _, fields in await self._newest(name, before, limit)]

    async def undos(self, name: str, *, before: int | None, limit: int) -> list[Undo]:
        """How to take changes back, newest first."""
        numbers = [number for number, _ in await self._newest(name, before, limit)]
        if not numbers:
            return []
        with self._translated():
            found = await self._client.hmget(SetKeys.of(name).undo, [str(n) for n in numbers])
        texts = cast("list[str | None]", found)
        return [Undo(number, text or "") for number, text in zip(numbers, texts, strict=True)]

    async def _newest(
        self, name: str, before: int | None, limit: int
    ) -> list[tuple[int, dict[str, str]]]:
        """Number and fields of the trail's entries, newest first."""
        newest = "+" if before is None else str(before - 1)
        with self._translated():
            found = await self._client.xrevrange(SetKeys.of(name).trail, newest, count=limit)
        entries = cast("list[tuple[str, dict[str, str]]]", found)
        return [(int(identifier.partition("-")[0]), fields) for identifier, fields in entries]

    async def changes(self) -> AsyncGenerator[str | None]:
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
            f"{SetKeys.of(name).meta} lacks its write_id or version. Something else wrote to"
            " it; delete the calibration and post it again."
        )
    return Version(write_id, int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _paired(flat: list[str]) -> dict[str, str]:
    """The hash that a script returns as field, value, field, value, ..."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _flat(fields: Mapping[str, str]) -> Iterator[str]:
    """Field, value, field, value, ... as HSET takes them."""
    for field, value in fields.items():
        yield field
        yield value
