"""The key file with hashed keys, which a running service reads again every half second."""

import errno
import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from app.api.auth.callers import Caller, Role
from app.api.requests.models import CalibrationName
from app.core.errors import KeysUnavailableError, StartupError, UnauthenticatedError

logger = logging.getLogger("app.api")

# Time between two readings of the file; so long a revoked key may still be accepted.
CHECK_EVERY_S = 0.5

# How long the keys of the last reading stay valid while this process cannot open any file.
KEPT_S = 60.0
# Errors of a process or machine without free resources; the file itself may be fine.
_NOT_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_PREFIX = "scope_"  # lets people and secret scanners recognize a key
_RANDOM_BYTES = 32

KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class KeyEntry(_Strict):
    """One key: its name, its hash, its roles, its calibration sets and its limits."""

    name: KeyName
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    roles: list[Role]
    calibrations: list[CalibrationName] | None = None
    created: datetime
    expires: AwareDatetime | None = None
    comparisons_per_minute: Annotated[int, Field(ge=1)] | None = None

    @property
    def caller(self) -> Caller:
        """The caller that this key identifies."""
        sets = None if self.calibrations is None else frozenset(self.calibrations)
        return Caller(
            self.name,
            frozenset(self.roles),
            sets,
            comparisons_per_minute=self.comparisons_per_minute,
            expires=self.expires,
        )


class KeyFile(_Strict):
    """The content of the key file."""

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


class _NoResourceError(KeyFileError):
    """This process cannot open any file, because a resource is exhausted."""


class _Known(NamedTuple):
    """One accepted key.

    Args:
        sha256: The hash of the key.
        caller: The caller that it identifies.
    """

    sha256: bytes
    caller: Caller


class _FileContent(NamedTuple):
    """One reading of the key file.

    Args:
        content: All bytes of the file.
        exposed: Whether users other than the file's owner can write to it.
    """

    content: bytes
    exposed: bool


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
    return _read(path).content


def _read(path: Path) -> _FileContent:
    try:
        # O_NONBLOCK, because opening a pipe would block the service.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError("it is not a regular file")
            return _FileContent(file.read(), bool(mode & WRITABLE_BY_OTHERS))
    except OSError as exc:
        kind = _NoResourceError if exc.errno in _NOT_THE_FILE else KeyFileError
        raise kind(exc.strerror or type(exc).__name__) from None


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
    return f"{place}: {message}" if place else message


class Keys:
    """The accepted keys, at most half a second older than the key file.

    The whole file is read each time, because size and modification time can stay the same if two
    edits fall into one tick of the file system's clock. Reading a few hundred bytes costs as little
    as asking the file system for the time.

    Args:
        path: Path of the key file.
        clock: Monotonic clock in seconds.
        now: Seconds since 1970.
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
        # Time since which the last keys are kept without the file; None while it can be opened.
        self._kept_since: float | None = None
        self._exposed = False
        self._content: bytes | None = None
        self._fault: str | None = None
        self._known: list[_Known] = []
        try:
            file = _read(path)
            self._take(file.content)
            self._exposed = file.exposed
        except KeyFileError as exc:
            raise StartupError(
                f"the key file {path} (SCOPE_API_KEYS_FILE) cannot be used: {exc}. Make one with "
                f"`scope-judge keys add NAME --role judge --file {path}`"
            ) from None

    def __len__(self) -> int:
        return len(self._known)

    @property
    def exposure(self) -> str | None:
        """A warning if users other than the file's owner can write to it; otherwise None."""
        if not self._exposed:
            return None
        return (
            f"users other than its owner can write to the key file {self._path} and add keys of "
            f"their own: chmod go-w {self._path}"
        )

    def caller(self, key: bytes) -> Caller:
        """The caller that a key identifies.

        Raises:
            UnauthenticatedError: The key is unknown or was revoked.
            ForbiddenError: The key has expired.
            KeysUnavailableError: The key file cannot be read, so every key is refused.
        """
        self.check()
        given = hash_of(key)
        match: Caller | None = None
        # Always compare with all keys, so that the duration does not reveal the position.
        for known in self._known:
            if hmac.compare_digest(known.sha256, given):
                match = known.caller
        if match is None:
            raise UnauthenticatedError("this key is unknown or was revoked")
        match.check_not_expired(self._now())
        return match

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
            file = _read(self._path)
            self._note_exposure(file.exposed)
            self._note_read()
            if file.content == self._content:
                return
            recovered = self._fault is not None
            self._take(file.content)
        except _NoResourceError as exc:
            self._keep(now, exc)
        except KeyFileError as exc:
            self._fail(exc)
        else:
            # The end of an error is as visible as the error; an ordinary change is not a warning.
            level = logging.WARNING if recovered else logging.INFO
            logger.log(level, "the key file was read again; number of keys: %d", len(self))

    def _fail(self, exc: KeyFileError) -> None:
        self._content = None
        if str(exc) != self._fault:
            self._fault = str(exc)
            logger.error(
                "the key file %s cannot be used, so every key is refused: %s", self._path, exc
            )

    def _keep(self, now: float, exc: KeyFileError) -> None:
        """Keeps the keys of the last reading for KEPT_S seconds."""
        # The time counts from the first failure, because the last reading may be long ago.
        if self._fault is None and self._kept_since is None:
            self._kept_since = now
            logger.error(
                "the key file %s cannot be opened: %s. The keys of the last reading stay valid for "
                "%g s",
                self._path,
                exc,
                KEPT_S,
            )
        if self._kept_since is None or now - self._kept_since > KEPT_S:
            self._fail(exc)

    def _note_read(self) -> None:
        if self._kept_since is not None and self._fault is None:
            logger.warning("the key file can be opened again")
        self._kept_since = None

    def _note_exposure(self, exposed: bool) -> None:
        before, self._exposed = self._exposed, exposed
        if self.exposure is not None and not before:
            logger.warning("%s", self.exposure)

    def _take(self, content: bytes) -> None:
        entries = parse_key_file(content).keys
        hashes = [bytes.fromhex(entry.sha256) for entry in entries]
        self._known = [
            _Known(sha256, entry.caller) for sha256, entry in zip(hashes, entries, strict=True)
        ]
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
    if keys.exposure is not None:
        warn(keys.exposure)
    return keys
