"""The log of audits in Redis: a stream whose ids are `position-0`, a secret, and evidence."""

import re
import secrets
from collections.abc import Sequence
from typing import cast

import redis

from app.core.errors import StoreCorruptError
from app.stores.redis_connection import RedisConnection, is_number
from app.stores.redis_scripts import APPEND_SCRIPT

AUDITS_KEY = "scope:audits"
SECRET_KEY = "scope:audits:secret"

# A draw is one entry. So few entries are packed on the event loop, because a thread costs more.
_MOST_ON_LOOP = 8


class RedisAudits(RedisConnection):
    """Keeps the log of audits and the evidence of replicas."""

    async def secret(self) -> bytes:
        """Returns 32 random bytes, which the first call of all replicas makes."""
        with self._translated():
            if not await self._client.exists(SECRET_KEY):
                await self._client.set(SECRET_KEY, secrets.token_hex(32), nx=True)
            found = str(await self._client.get(SECRET_KEY))
        if not re.fullmatch("[0-9a-f]{64}", found):
            raise StoreCorruptError(
                f"{SECRET_KEY} is not a secret that this service makes. Another program wrote to"
                " it; restore Redis from a backup."
            )
        return bytes.fromhex(found)

    async def append_audits(self, entries: Sequence[str], *, synced: bool = True) -> int:
        """Appends entries in one atomic step, and returns the position of the last one.

        The settings of the server determine whether they are on the disk then.
        """
        if len(entries) <= _MOST_ON_LOOP:
            with self._translated():
                last = await self._client.eval(APPEND_SCRIPT, 1, AUDITS_KEY, *entries)
        else:
            last = await self._in_thread(
                lambda bulk: bulk.eval(APPEND_SCRIPT, 1, AUDITS_KEY, *entries)
            )
        return int(cast("int", last))

    async def audits(self, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Returns position and text of entries after a position, in order."""

        def read(bulk: redis.Redis) -> list[tuple[int, str]]:
            found = bulk.xrange(AUDITS_KEY, str(after + 1), "+", count=limit)
            entries = cast("list[tuple[str, dict[str, str]]]", found)
            return [(_position(identifier), each.get("entry", "")) for identifier, each in entries]

        return await self._in_thread(read)

    async def last_audit(self) -> int:
        """Returns the position of the last entry; 0 for an empty log."""
        with self._translated():
            found = await self._client.xrevrange(AUDITS_KEY, count=1)
        entries = cast("list[tuple[str, dict[str, str]]]", found)
        return _position(entries[0][0]) if entries else 0

    async def put_evidence(self, name: str, replica: str, text: str) -> None:
        """Keeps the evidence of one replica instead of its earlier one."""
        with self._translated():
            await self._client.hset(_evidence_key(name), replica, text)

    async def evidence(self, name: str) -> dict[str, str]:
        """Returns the evidence about a set by the names of replicas."""
        with self._translated():
            found = await self._client.hgetall(_evidence_key(name))
        return cast("dict[str, str]", found)


def _evidence_key(name: str) -> str:
    return f"scope:calibration:{name}:evidence"


def _position(identifier: str) -> int:
    """Returns the position in the id of an entry."""
    number, _, sequence = identifier.partition("-")
    if not is_number(number) or sequence != "0":
        raise StoreCorruptError(
            f"{AUDITS_KEY} has an entry with a position that this service does not use. Another"
            " program wrote to it; restore Redis from a backup."
        )
    return int(number)
