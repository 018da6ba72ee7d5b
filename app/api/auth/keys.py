"""Who holds a key: the file of hashed keys, read again while the service runs."""

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

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from app.api.auth.callers import Caller, Role
from app.core.errors import KeysUnavailableError, StartupError, UnauthenticatedError
from app.wire.requests import CalibrationName

logger = logging.getLogger("app.api")

# How long a key that was revoked may still be let in.
CHECK_EVERY_S = 0.5

# How long the keys that were read last go on to count while this process cannot open a file.
KEPT_S = 60.0
# The process or the machine is short of something, and the file may be as it was.
_NOT_THE_FILE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_PREFIX = "scope_"  # by which people and secret scanners know what they have found
_RANDOM_BYTES = 32

KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class KeyEntry(_Strict):
    """One key: whose it is, the hash it is known by, and what it may do."""

    name: KeyName
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    roles: list[Role]
    calibrations: list[CalibrationName] | None = None
    created: datetime

    @property
    def caller(self) -> Caller:
        """Whoever sends this key."""
        sets = None if self.calibrations is None else frozenset(self.calibrations)
        return Caller(self.name, frozenset(self.roles), sets)


class KeyFile(_Strict):
    """What the file of keys holds."""

    keys: list[KeyEntry] = []

    @field_validator("keys")
    @classmethod
    def _each_once(cls, keys: list[KeyEntry]) -> list[KeyEntry]:
        twice = sorted(name for name, n in Counter(key.name for key in keys).items() if n > 1)
        if twice:
            raise ValueError(f"more than one key is named {', '.join(twice)}")
        if len({key.sha256 for key in keys}) < len(keys):
            raise ValueError("the same key stands there under two names")
        return keys


class KeyFileError(Exception):
    """The file of keys cannot be used; the message says why, without anything secret."""


class _NoResourceError(KeyFileError):
    """This process cannot open a file, whatever is in it."""


class _Read(NamedTuple):
    """The file as it was read.

    Args:
        content: All of it.
        exposed: Whether others than its owner can write to it.
    """

    content: bytes
    exposed: bool


def new_key() -> str:
    """Makes a key: nobody can guess it, and it can be selected with a double click."""
    while True:
        key = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        # A hyphen ends a double click's selection, and half a key is hard to notice; costs one bit.
        if "-" not in key:
            return key


def hash_of(key: bytes) -> bytes:
    """What a key is known by.

    One SHA-256 without salt is enough: a key is 255 random bits, not a password that somebody
    chose, so there is no dictionary to try and no two keys are alike. A slow hash would only
    make every request slow.
    """
    return hashlib.sha256(key).digest()


def read_key_file(path: Path) -> bytes:
    """The bytes of the file; raises KeyFileError where it cannot be read."""
    return _read(path).content


def _read(path: Path) -> _Read:
    try:
        # Not blocking: a pipe in its place must not hold up the service.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError("it is not a file")
            return _Read(file.read(), bool(mode & _WRITABLE_BY_OTHERS))
    except OSError as exc:
        kind = _NoResourceError if exc.errno in _NOT_THE_FILE else KeyFileError
        raise kind(exc.strerror or type(exc).__name__) from None


def key_entry(**fields: Any) -> KeyEntry:
    """An entry of the file; raises KeyFileError where a name or a role is none."""
    try:
        return KeyEntry(**fields)
    except ValidationError as exc:
        raise _fault(exc) from None


def parse_key_file(content: bytes) -> KeyFile:
    """The keys in the file; raises KeyFileError where they cannot be made out."""
    try:
        return KeyFile.model_validate_json(content)
    except ValidationError as exc:
        raise _fault(exc) from None


def _fault(exc: ValidationError) -> KeyFileError:
    faults = exc.errors(include_url=False, include_input=False, include_context=False)
    return KeyFileError("; ".join(_words(fault) for fault in faults[:3]))


def _words(fault: Any) -> str:
    # The name of an unknown field is whatever stands in the file: a hash, at the worst.
    known = fault["loc"][:-1] if fault["type"] == "extra_forbidden" else fault["loc"]
    place = ".".join(map(str, known))
    message = fault["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


class Keys:
    """The keys that are let in, at most half a second behind the file.

    The file is read again as a whole, not only looked at: an edit within one tick of the file
    system's clock leaves size and time as they were, and a few hundred bytes cost as little.

    Args:
        path: The file of keys.
        clock: Monotonic, in seconds.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._checked_at = clock()
        # When the keys that were read last began to count without the file; None while it is read.
        self._kept_since: float | None = None
        self._exposed = False
        self._content: bytes | None = None
        self._fault: str | None = None
        self._known: list[tuple[bytes, Caller]] = []
        try:
            found = _read(path)
            self._take(found.content)
            self._exposed = found.exposed
        except KeyFileError as exc:
            raise StartupError(
                f"the file of keys {path} (SCOPE_API_KEYS_FILE) cannot be used: {exc}. Make it with"
                f" `scope-judge keys add NAME --role judge --file {path}`"
            ) from None

    def __len__(self) -> int:
        return len(self._known)

    @property
    def exposure(self) -> str | None:
        """A warning where others than the file's owner can write to it, and so make keys."""
        if not self._exposed:
            return None
        return (
            f"the file of keys {self._path} can be written by others than its owner, who can let "
            f"themselves in: chmod go-w {self._path}"
        )

    def caller(self, key: bytes) -> Caller:
        """Whose key it is.

        Raises:
            UnauthenticatedError: It is nobody's, or not any more.
            KeysUnavailableError: The file cannot be read, so nobody is let in.
        """
        self.check()
        given = hash_of(key)
        found: Caller | None = None
        # All of them, wherever the right one stands: how long it takes tells nothing.
        for known, caller in self._known:
            if hmac.compare_digest(known, given):
                found = caller
        if found is None:
            raise UnauthenticatedError("this key is not known here, or was revoked")
        return found

    def check(self) -> None:
        """Raises KeysUnavailableError while the file cannot be read."""
        self._refresh()
        if self._fault is not None:
            raise KeysUnavailableError(
                "the service cannot read its file of keys, so nobody is let in; its log says why"
            )

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        try:
            found = _read(self._path)
            self._note_exposure(found.exposed)
            self._note_read()
            if found.content == self._content:
                return
            recovered = self._fault is not None
            self._take(found.content)
        except _NoResourceError as exc:
            self._keep(now, exc)
        except KeyFileError as exc:
            self._fail(exc)
        else:
            # As loud as the error that it ends; a key more or less is nothing to be warned of.
            level = logging.WARNING if recovered else logging.INFO
            logger.log(level, "the file of keys was read again; keys in it: %d", len(self))

    def _fail(self, exc: KeyFileError) -> None:
        self._content = None
        if str(exc) != self._fault:
            self._fault = str(exc)
            logger.error(
                "the file of keys %s cannot be used, nobody is let in: %s", self._path, exc
            )

    def _keep(self, now: float, exc: KeyFileError) -> None:
        """Goes on with the keys that were read last, for a while."""
        # From the first failure on: nobody may have asked for a long time before it.
        if self._fault is None and self._kept_since is None:
            self._kept_since = now
            logger.error(
                "the file of keys %s cannot be opened: %s. The keys that were read last count for "
                "%g s more",
                self._path,
                exc,
                KEPT_S,
            )
        if self._kept_since is None or now - self._kept_since > KEPT_S:
            self._fail(exc)

    def _note_read(self) -> None:
        if self._kept_since is not None and self._fault is None:
            logger.warning("the file of keys can be opened again")
        self._kept_since = None

    def _note_exposure(self, exposed: bool) -> None:
        before, self._exposed = self._exposed, exposed
        if self.exposure is not None and not before:
            logger.warning("%s", self.exposure)

    def _take(self, content: bytes) -> None:
        entries = parse_key_file(content).keys
        self._known = [(bytes.fromhex(entry.sha256), entry.caller) for entry in entries]
        self._content, self._fault = content, None


def open_keys(path: Path | None, warn: Callable[[str], None]) -> Keys | None:
    """Reads the file of keys at the start; None where none is set.

    Raises:
        StartupError: It is missing, or cannot be used.
    """
    if path is None:
        return None
    keys = Keys(path)
    if not len(keys):
        warn(
            f"there is no key in {path}, so nobody is let in: make one with "
            f"`scope-judge keys add NAME --role judge --file {path}`"
        )
    if keys.exposure is not None:
        warn(keys.exposure)
    return keys
