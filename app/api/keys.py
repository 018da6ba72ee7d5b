"""The key file, which has the callers of the service with their hashed keys.

A running service reads the file again every half second.
"""

import hashlib
import logging
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from app.api.access import STRICT, Caller
from app.api.requests.models import CalibrationName
from app.core.errors import KeysUnavailableError, StartupError, UnauthenticatedError

logger = logging.getLogger("app.api")

# Time between two readings of the file; so long a revoked key may still be accepted.
CHECK_EVERY_S = 0.5

_PREFIX = "scope_"  # lets people and secret scanners recognize a key
_RANDOM_BYTES = 32

KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class KeyEntry(Caller):
    """One key: its caller, its hash, and when it was made."""

    name: KeyName
    calibrations: list[CalibrationName] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: datetime


class KeyFile(BaseModel):
    """The content of the key file."""

    model_config = STRICT

    keys: list[KeyEntry] = []

    @field_validator("keys")
    @classmethod
    def _each_once(cls, keys: list[KeyEntry]) -> list[KeyEntry]:
        twice = sorted(name for name, n in Counter(key.name for key in keys).items() if n > 1)
        if twice:
            raise ValueError(f"more than one key is named {', '.join(twice)}")
        if len({key.sha256 for key in keys}) < len(keys):
            raise ValueError("the same key has two names")
        return keys


class KeyFileError(Exception):
    """The key file cannot be used; the message says why and contains no secrets."""


def new_key() -> str:
    """Makes a random key that a double click selects as a whole."""
    while True:
        key = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        # A double click selects only up to a hyphen, and people would not notice that they copied
        # half a key. Avoiding hyphens costs one bit.
        if "-" not in key:
            return key


def hash_of(key: bytes) -> bytes:
    """The SHA-256 of a key.

    One SHA-256 without salt is enough: a key has 255 random bits and is not a password, so no
    dictionary helps to guess it and no two keys are equal. A slow hash would only slow down every
    request.
    """
    return hashlib.sha256(key).digest()


def read_key_file(path: Path) -> bytes:
    """The bytes of the key file; raises KeyFileError if it cannot be read."""
    try:
        # O_NONBLOCK, because opening a pipe would block the service.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise KeyFileError("it is not a regular file")
            return file.read()
    except OSError as exc:
        raise KeyFileError(exc.strerror or type(exc).__name__) from None


def key_entry(**fields: Any) -> KeyEntry:
    """Makes an entry of the key file; raises KeyFileError if a name or role is invalid."""
    try:
        return KeyEntry(**fields)
    except ValidationError as exc:
        raise _fault(exc) from None


def parse_key_file(content: bytes) -> KeyFile:
    """Parses the key file; raises KeyFileError if its content is invalid."""
    try:
        return KeyFile.model_validate_json(content)
    except ValidationError as exc:
        raise _fault(exc) from None


def _fault(exc: ValidationError) -> KeyFileError:
    faults = exc.errors(include_url=False, include_input=False, include_context=False)
    return KeyFileError("; ".join(_words(fault) for fault in faults[:3]))


def _words(fault: Any) -> str:
    # Leave out the name of an unknown field: it may be a secret, for example a hash.
    known = fault["loc"][:-1] if fault["type"] == "extra_forbidden" else fault["loc"]
    place = ".".join(map(str, known))
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "string_pattern_mismatch" and "sha256" not in known:
        message = "use up to 64 letters, digits and . _ -, beginning with a letter or digit"
    return f"{place}: {message}" if place else message


class Keys:
    """The accepted keys, at most half a second older than the key file.

    The whole file is read each time, because size and modification time can stay the same if two
    edits fall into one tick of the file system's clock. Reading a few hundred bytes costs as little
    as asking the file system for the time.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._clock = clock
        self._now = now
        self._checked_at = clock()
        self._content: bytes | None = None
        self._fault: str | None = None
        # SHA-256 of a key -> the caller that it identifies.
        self._callers: dict[bytes, Caller] = {}
        try:
            self._take(read_key_file(path))
        except KeyFileError as exc:
            raise StartupError(
                f"the key file {path} (SCOPE_API_KEYS_FILE) cannot be used: {exc}. Make one with "
                f"`scope-judge keys add NAME --role judge --file {path}`"
            ) from None

    def __len__(self) -> int:
        return len(self._callers)

    def caller(self, key: bytes) -> Caller:
        """The caller that a key identifies.

        Raises:
            UnauthenticatedError: The key is unknown or was revoked.
            ForbiddenError: The key has expired.
            KeysUnavailableError: The key file cannot be read, so every key is refused.
        """
        self.check()
        found = self._callers.get(hash_of(key))
        if found is None:
            raise UnauthenticatedError("this key is unknown or was revoked")
        found.check_not_expired(self._now())
        return found

    def check(self) -> None:
        """Raises KeysUnavailableError while the key file cannot be used."""
        self._refresh()
        if self._fault is not None:
            raise KeysUnavailableError(
                "the service cannot use its key file, so it refuses every key; its log has the "
                "reason"
            )

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        try:
            content = read_key_file(self._path)
            if content == self._content:
                return
            recovered = self._fault is not None
            self._take(content)
        except KeyFileError as exc:
            self._content = None
            if str(exc) != self._fault:
                self._fault = str(exc)
                logger.error(
                    "the key file %s cannot be used, so every key is refused: %s", self._path, exc
                )
        else:
            # The end of an error is as visible as the error; an ordinary change is not a warning.
            level = logging.WARNING if recovered else logging.INFO
            logger.log(level, "the key file was read again; number of keys: %d", len(self))

    def _take(self, content: bytes) -> None:
        entries = parse_key_file(content).keys
        self._callers = {bytes.fromhex(entry.sha256): entry for entry in entries}
        self._content, self._fault = content, None


def open_keys(path: Path | None, warn: Callable[[str], None]) -> Keys | None:
    """Reads the key file at the start; returns None if none is set.

    Raises:
        StartupError: The key file is missing or cannot be used.
    """
    if path is None:
        return None
    keys = Keys(path)
    if not len(keys):
        warn(
            f"the key file {path} has no keys, so the service refuses every key: make one with "
            f"`scope-judge keys add NAME --role judge --file {path}`"
        )
    return keys
