"""Tests of the key file: its valid content, and how a running service follows its changes."""

import hashlib
import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.api.keys import CHECK_EVERY_S, Keys, hash_of, new_key, open_keys
from app.core.errors import (
    ForbiddenError,
    KeysUnavailableError,
    StartupError,
    UnauthenticatedError,
)
from tests.patience import Clock
from tests.unit.api.keyring import entry, key_of, write_keys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def caller_name(keys: Keys, name: str) -> str:
    return keys.caller(key_of(name).encode()).name


def test_a_key_is_refused_with_the_reason_from_its_end_on(path: Path, clock: Clock) -> None:
    ends = datetime(2026, 11, 30, tzinfo=UTC)
    limits = {"expires": "2026-11-30T00:00:00Z", "comparisons_per_minute": 60}
    write_keys(path, entry("a") | limits, entry("b"))
    now = Clock()
    keys = Keys(path, clock=clock, now=now)
    now.now = ends.timestamp() - 1
    found = keys.caller(key_of("a").encode())
    assert (found.expires, found.comparisons_per_minute) == (ends, 60)
    now.now = ends.timestamp()
    with pytest.raises(ForbiddenError, match="'a' expired at 2026-11-30 00:00 UTC"):
        keys.caller(key_of("a").encode())
    assert caller_name(keys, "b") == "b"


@pytest.mark.parametrize(
    "limits",
    [{"comparisons_per_minute": 0}, {"expires": "2026-11-30T00:00:00"}, {"expires": "soon"}],
)
def test_a_limit_that_is_not_valid_makes_the_file_unusable(
    path: Path, clock: Clock, limits: dict[str, Any]
) -> None:
    write_keys(path, entry("a") | limits)
    with pytest.raises(StartupError, match=next(iter(limits))):
        Keys(path, clock=clock)


def test_keys_are_long_random_and_have_one_word() -> None:
    made = {new_key() for _ in range(200)}
    assert len(made) == 200
    # Base64 encodes 32 bytes in 43 characters.
    assert all(len(key) == len("scope_") + 43 and "-" not in key for key in made)


def test_the_hash_is_plain_sha256() -> None:
    # Users can make an entry by hand with `printf %s KEY | sha256sum`.
    assert hash_of(b"abc").hex() == hashlib.sha256(b"abc").hexdigest()


def test_a_revoked_key_is_refused_within_half_a_second(path: Path, clock: Clock) -> None:
    keys = Keys(write_keys(path, entry("a"), entry("b")), clock=clock)
    write_keys(path, entry("b"))
    clock.now += CHECK_EVERY_S / 2
    assert caller_name(keys, "a") == "a"
    clock.now += CHECK_EVERY_S / 2
    with pytest.raises(UnauthenticatedError):
        caller_name(keys, "a")
    assert caller_name(keys, "b") == "b"


def test_a_new_key_is_accepted_without_a_restart(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keys = Keys(write_keys(path, entry("a")), clock=clock)
    write_keys(path, entry("a"), entry("b"))
    clock.now += CHECK_EVERY_S
    assert caller_name(keys, "b") == "b"
    clock.now += CHECK_EVERY_S
    assert caller_name(keys, "b") == "b"
    assert caplog.text.count("number of keys: 2") == 1


def test_an_edit_with_the_same_size_and_time_is_noticed(path: Path, clock: Clock) -> None:
    keys = Keys(write_keys(path, entry("a")), clock=clock)
    before = path.stat()
    text = path.read_text().replace('"judge"', '"admin"')
    with path.open("r+") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )
    clock.now += CHECK_EVERY_S
    assert keys.caller(key_of("a").encode()).roles == ["admin"]


@pytest.mark.parametrize("damage", ["removed", "half written", "a folder", "a pipe"])
def test_an_unreadable_file_refuses_every_key_until_it_is_readable(
    damage: str, path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(write_keys(path, entry("a")), clock=clock)
    content = path.read_text()
    path.unlink()
    if damage == "half written":
        path.write_text(content[:-20])
    elif damage == "a folder":
        path.mkdir()
    elif damage == "a pipe":
        os.mkfifo(path)
    for _ in range(3):
        clock.now += CHECK_EVERY_S
        with pytest.raises(KeysUnavailableError):
            caller_name(keys, "a")
    assert caplog.text.count("every key is refused") == 1
    assert hash_of(key_of("a").encode()).hex()[:8] not in caplog.text

    if damage == "a folder":
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_text(content)  # the same bytes as before
    clock.now += CHECK_EVERY_S
    assert caller_name(keys, "a") == "a"
    assert "number of keys: 1" in caplog.text


HASH = "ab" * 32
SOUND = entry("a")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "JSON"),
        ("[]", "object"),
        ('{"keys": 3}', "keys"),
        ({"keys": [SOUND, SOUND]}, "more than one key is named a"),
        ({"keys": [SOUND, {**SOUND, "name": "b"}]}, "the same key has two names"),
        ({"keys": [{**SOUND, "name": "../a"}]}, "keys.0.name"),
        ({"keys": [{**SOUND, "name": "a\n"}]}, "keys.0.name"),
        ({"keys": [{**SOUND, "sha256": HASH.upper()}]}, "keys.0.sha256"),
        ({"keys": [{**SOUND, "sha256": HASH[:-1]}]}, "keys.0.sha256"),
        ({"keys": [{**SOUND, "roles": [HASH]}]}, "'label', 'admin' or 'metrics'"),
        ({"keys": [{**SOUND, "roles": None}]}, "keys.0.roles"),
        ({"keys": [{**SOUND, "calibrations": [f"/{HASH}"]}]}, "keys.0.calibrations.0"),
        ({"keys": [{**SOUND, "created": HASH}]}, "keys.0.created"),
        ({"keys": [{**SOUND, HASH: 1}]}, "keys.0"),
        ({"keys": [], HASH: []}, "Extra inputs"),
    ],
)
def test_a_broken_file_stops_the_start_without_revealing_a_hash(
    content: Any, words: str, path: Path, clock: Clock
) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(StartupError) as raised:
        Keys(path, clock=clock)
    assert words in raised.value.detail
    for secret in (HASH, HASH.upper(), HASH[:-1], SOUND["sha256"]):
        assert secret not in raised.value.detail


def test_a_missing_file_stops_the_start_and_says_how_to_make_one(path: Path) -> None:
    with pytest.raises(StartupError, match="scope-judge keys add NAME --role judge --file"):
        open_keys(path, pytest.fail)


def test_an_empty_key_file_causes_a_warning_at_the_start(path: Path) -> None:
    warnings: list[str] = []
    keys = open_keys(write_keys(path), warnings.append)
    assert keys is not None
    assert len(warnings) == 1
    assert "refuses every key" in warnings[0]
    with pytest.raises(UnauthenticatedError):
        keys.caller(key_of("a").encode())
