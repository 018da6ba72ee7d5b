"""Fills Redis with the content of a store, in one step.

Redis cannot write so much in one step. So the content first goes to staged keys, which no service
reads, and a script then moves them all to their places. A killed load leaves staged keys, which the
next load removes.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, cast

import redis

from app.core.errors import StoreUnavailableError
from app.ports import (
    AuditsPart,
    ChangePart,
    SecretPart,
    SetPart,
    StoredCalibration,
    StorePart,
)
from app.stores.redis_keys import (
    AUDIT_TEXTS_KEY,
    AUDITS_KEY,
    NAMES_KEY,
    RESTORING_KEY,
    SECRET_KEY,
    SetKeys,
)
from app.stores.redis_scripts import LOAD_SCRIPT

# Characters that are sent to the server in one go, and fields of one HSET.
_PIECE_CHARACTERS = 2**20
_PIECE_FIELDS = 4000


def trail_names(bulk: redis.Redis) -> set[str]:
    """Returns the names of all sets, and of deleted sets whose trails remain."""
    before, after = SetKeys.of("*").trail.split("*")
    names = cast("set[str]", bulk.smembers(NAMES_KEY))
    trails = bulk.scan_iter(match=f"{before}*{after}", count=1000)
    return names | {key.removeprefix(before).removesuffix(after) for key in trails}


def load(bulk: redis.Redis, parts: Iterable[StorePart], *, replace: bool) -> bool:
    """Fills Redis; returns False if it is not empty and `replace` is not set.

    Raises:
        StoreUnavailableError: Another load has begun meanwhile; nothing was changed.
    """
    present = trail_names(bulk)
    if not replace and (present or bulk.exists(AUDITS_KEY)):
        return False
    token = secrets.token_hex(8)
    bulk.set(RESTORING_KEY, token)
    _unlink(bulk, list(bulk.scan_iter(match=f"{RESTORING_KEY}:*", count=1000)))
    stage = _Stage(bulk, f"{RESTORING_KEY}:{token}:")
    try:
        for part in parts:
            stage.take(part)
        stage.send()
        names = sorted(stage.names | present)
        arguments = (token, stage.prefix, str(int(replace)), _json(stage.keys), _json(names))
        keys = (RESTORING_KEY, NAMES_KEY, AUDITS_KEY, AUDIT_TEXTS_KEY)
        outcome = bulk.eval(LOAD_SCRIPT, len(keys), *keys, *arguments)
    finally:
        with suppress(redis.RedisError, OSError):
            _unlink(bulk, [stage.prefix + key for key in stage.keys])
            if bulk.get(RESTORING_KEY) == token:
                bulk.unlink(RESTORING_KEY)
    if outcome == "interrupted":
        raise StoreUnavailableError(
            "Another restore into this Redis has begun meanwhile, and this one has changed nothing."
            " Let one of them finish."
        )
    return bool(outcome == "done")


class _Stage:
    """The staged keys.

    Args:
        bulk: The client.
        prefix: Beginning of the names of staged keys.
    """

    def __init__(self, bulk: redis.Redis, prefix: str) -> None:
        self.prefix = prefix
        # The keys that the staged ones will replace.
        self.keys = dict[str, None]()
        self.names = set[str]()
        self._pipeline = bulk.pipeline(transaction=False)
        self._characters = 0

    def take(self, part: StorePart) -> None:
        """Stages one part of a store."""
        match part:
            case ChangePart():
                keys, number = SetKeys.of(part.name), part.change.number
                self.names.add(part.name)
                self._append(keys.trail, number, "record", part.change.record)
                self._put(keys.undo, {str(number): part.change.undo})
            case SetPart():
                self.names.add(part.name)
                self._put_state(SetKeys.of(part.name), part.state)
                self._pipeline.sadd(self._staged(NAMES_KEY), part.name)
            case SecretPart():
                self._pipeline.set(self._staged(SECRET_KEY), part.secret.hex())
            case AuditsPart():
                for position, text in part.entries:
                    self._append(AUDITS_KEY, position, "entry", text)

    def send(self) -> None:
        """Sends everything that was taken so far."""
        self._pipeline.execute()
        self._characters = 0

    def _put_state(self, keys: SetKeys, state: StoredCalibration) -> None:
        version = {"write_id": state.version.write_id, "version": str(state.version.number)}
        self._put(keys.meta, {**state.meta, **version})
        self._put(keys.thresholds, state.thresholds)
        self._put(keys.examples, state.examples)

    def _put(self, key: str, fields: Mapping[str, str]) -> None:
        pairs = iter(fields.items())
        while piece := dict[Any, Any](islice(pairs, _PIECE_FIELDS)):
            self._pipeline.hset(self._staged(key), mapping=piece)
            self._count(*piece, *piece.values())

    def _append(self, key: str, number: int, field: str, text: str) -> None:
        self._pipeline.xadd(self._staged(key), {field: text}, id=f"{number}-0")
        self._count(text)

    def _staged(self, key: str) -> str:
        self.keys[key] = None
        return self.prefix + key

    def _count(self, *texts: str) -> None:
        self._characters += sum(map(len, texts))
        if self._characters > _PIECE_CHARACTERS:
            self.send()


def _unlink(bulk: redis.Redis, keys: list[str]) -> None:
    if keys:
        bulk.unlink(*keys)


def _json(names: Iterable[str]) -> str:
    return json.dumps(list(names))
