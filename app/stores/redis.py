"""A store in Redis, for several replicas and for programs that read lambda_hat.

The keys of a set are a public interface:

    scope:calibrations                       set: the names of all sets
    scope:calibration:{name}:meta            hash: write_id, version, and the fields of meta,
                                             which app/service/calibration/codec.py describes
    scope:calibration:{name}:examples        hash: digest -> labelled score
    scope:calibration:{name}:thresholds      hash: "guarantee:alpha" -> lambda_hat
    scope:calibration:{name}:trail           stream: `number-0` -> record of each change
    scope:calibration:{name}:undo            hash: number -> undo of that change

    scope:calibration:changed                channel: the name of each set that changes

    scope:audits                             stream: `position-0` -> entry of the log of audits
    scope:audits:secret                      string: the secret that draws audits, in hexadecimal
    scope:calibration:{name}:evidence        hash: replica -> its evidence about the set

The keys `trail` and `undo` remain after the set is deleted. A stream accepts only entries after its
last one and never changes an entry. So `XREVRANGE …:trail + -` returns the trail as it was written,
and `XREAD` follows the trail.

A write is one Lua script. Redis runs it atomically and logs it completely, so a broken connection
leaves either the old state or the new state. WATCH of redis-py is unsuitable: if the connection
breaks after EXEC was sent, redis-py raises WatchError, which would mean "nothing was written"
although everything may have been written. For the same reason no call is retried: a write that
succeeded before its answer was lost would find its own version and report a conflict.

Whole sets and trails go through the client in threads. Only short answers and the channel use the
event loop.
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from typing import NamedTuple, cast

import redis

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.ports import StoredCalibration, StoredChange, Version
from app.stores.redis_audits import RedisAudits
from app.stores.redis_connection import HEALTH_CHECK_INTERVAL_S, NAMES_KEY, is_number
from app.stores.redis_scripts import (
    DELETE_SCRIPT,
    LAST_NUMBER_SCRIPT,
    READ_SCRIPT,
    WRITE_SCRIPT,
)

CHANGED_CHANNEL = "scope:calibration:changed"
VERSION_FIELDS = ("write_id", "version")


class SetKeys(NamedTuple):
    """The keys of one set."""

    meta: str
    examples: str
    thresholds: str
    trail: str
    undo: str

    @classmethod
    def of(cls, name: str) -> "SetKeys":
        """Returns the keys of the set with this name."""
        return cls(*(f"scope:calibration:{name}:{part}" for part in cls._fields))


class RedisStore(RedisAudits):
    """Keeps calibration sets and audits in one Redis server that several replicas can share.

    The settings of the server determine how durable a write is. A write survives a power cut with
    `appendonly yes` and `appendfsync always`. Redis Cluster is not supported, because the keys of a
    set hash to different slots.
    """

    async def names(self) -> list[str]:
        """Returns the names of all sets, sorted."""
        found = await self._in_thread(lambda bulk: bulk.smembers(NAMES_KEY))
        return sorted(cast("set[str]", found))

    async def version(self, name: str) -> Version | None:
        """Returns the version of a set, with one HMGET; None without such a set."""
        with self._translated():
            found = await self._client.hmget(SetKeys.of(name).meta, VERSION_FIELDS)
        values = cast("list[str | None]", found)
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
            found = await self._client.eval(LAST_NUMBER_SCRIPT, 2, keys.meta, keys.trail)
        version, last = cast("list[str]", found)
        if last and not is_number(last):
            raise StoreCorruptError(
                f"{keys.trail} has an entry with a number that this service does not use."
                " Another program wrote to it; restore Redis from a backup."
            )
        # A malformed version counts as absent, so that its set can be deleted with the next number
        # of the trail.
        return max((int(text) for text in (version, last) if is_number(text)), default=0)

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
            found = bulk.hmget(SetKeys.of(name).undo, [str(n) for n in numbers])
            texts = cast("list[str | None]", found)
            return {number: text or "" for number, text in zip(numbers, texts, strict=True)}

        return await self._in_thread(undos)

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


def _version(name: str, meta: Mapping[str, str | None]) -> Version | None:
    """Returns the version in a meta hash; None if the hash is empty."""
    write_id, number = (meta.get(field) for field in VERSION_FIELDS)
    if all(value is None for value in meta.values()):
        return None
    if not write_id or not number or not is_number(number):
        raise StoreCorruptError(
            f"{SetKeys.of(name).meta} has no write_id, or a version that this service does not"
            " write. Another program wrote to it; delete the calibration and post it again."
        )
    return Version(write_id, int(number))


def _newest(
    bulk: redis.Redis, name: str, before: int | None, limit: int
) -> list[tuple[int, dict[str, str]]]:
    """Returns number and fields of entries of the trail, newest first."""
    newest = "+" if before is None else str(before - 1)
    found = bulk.xrevrange(SetKeys.of(name).trail, newest, count=limit)
    entries = cast("list[tuple[str, dict[str, str]]]", found)
    return [(int(identifier.partition("-")[0]), fields) for identifier, fields in entries]


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
