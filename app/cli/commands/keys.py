"""`scope-judge keys add | list | revoke`: edits the file of API keys atomically."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import CommandError, print_cells, say, stdout
from app.files.replacing import replacing

# The help of a command needs its options only: functions import what reads the key file.
if TYPE_CHECKING:
    from app.api.keys import KeyEntry

app = typer.Typer(help="Make, list and revoke the keys of the service.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the key's owner: letters, digits and . _ -")]
File = Annotated[
    Path | None,
    typer.Option(envvar="SCOPE_API_KEYS_FILE", help="Key file of the service."),
]


@app.command()
def add(
    name: Name,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="judge, calibrate, label (audits only), admin (delete, roll back) or metrics; "
            "repeat for more."
        ),
    ] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option(help="Calibration set that the key may use; repeat for more.  [default: all]"),
    ] = None,
    file: File = None,
    comparisons_per_minute: Annotated[
        int | None,
        typer.Option(min=1, help="Limit per minute, on average."),
    ] = None,
    expires: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d", "%Y-%m-%d %H:%M"],
            help="UTC time at which the key expires.",
        ),
    ] = None,
) -> None:
    """Create a key and print it; the file keeps only its hash.

    Without a role, a key can only read /info and the calibration sets.
    """
    from app.api.keys import KeyFileError, hash_of, key_entry, new_key

    path = _path(file)
    if calibration and "metrics" in (role or ()):
        raise CommandError(
            "no key was made: /metrics shows every calibration set, so leave --calibration out, or "
            "make a separate key for metrics"
        )
    now = datetime.now(UTC).replace(microsecond=0)
    expires = None if expires is None else expires.replace(tzinfo=UTC)
    if expires is not None and expires <= now:
        raise CommandError(f"no key was made: {expires:%Y-%m-%d %H:%M %Z} has passed")
    key = new_key()
    try:
        entry = key_entry(
            name=name,
            sha256=hash_of(key.encode()).hex(),
            roles=list(dict.fromkeys(role or ())),
            calibrations=list(dict.fromkeys(calibration)) if calibration else None,
            created=now,
            expires=expires,
            comparisons_per_minute=comparisons_per_minute,
        )
    except KeyFileError as exc:
        raise CommandError(f"no key was made: {exc}") from None
    with _changing(path) as held:
        if any(key.name == name for key in held):
            raise CommandError(
                f"{path} already has a key named {name}: use another name, or revoke that key "
                f"first with `scope-judge keys revoke {name}`"
            )
        held.append(entry)
    print(key, flush=True)
    if stdout.is_terminal:
        say(f"This is the only time the key is shown: {path} has only its hash.")


@app.command(name="list")
def list_keys(file: File = None) -> None:
    """List the keys. In a pipe, the table is tab-separated."""
    entries = _read(_path(file))
    headings = ("name", "roles", "calibrations", "created", "expires", "per minute")
    print_cells(headings, map(_cells, entries))


@app.command()
def revoke(name: Name, file: File = None) -> None:
    """Revoke a key; a running service refuses it within a second."""
    path = _path(file)
    with _changing(path, must_exist=True) as held:
        kept = [key for key in held if key.name != name]
        if len(kept) == len(held):
            raise CommandError(
                f"{path} has no key named {name}: `scope-judge keys list` shows them"
            )
        held[:] = kept
    say(f"{name} is revoked.")
    if not kept:
        say("No key is left: the service refuses everybody.")


def _cells(entry: "KeyEntry") -> tuple[str, ...]:
    return (
        entry.name,
        ",".join(entry.roles) or "-",
        _sets(entry),
        entry.created.isoformat(),
        "-" if entry.expires is None else entry.expires.isoformat(),
        str(entry.comparisons_per_minute or "-"),
    )


def _sets(entry: "KeyEntry") -> str:
    # No calibration set can be named "*" or "-".
    return "*" if entry.calibrations is None else ",".join(entry.calibrations) or "-"


def _path(file: Path | None) -> Path:
    if file is None:
        raise CommandError("no key file: set SCOPE_API_KEYS_FILE, or give --file")
    # The target of a symbolic link is replaced, not the link.
    return file.resolve()


def _read(path: Path) -> "list[KeyEntry]":
    from app.api.keys import KeyFileError, parse_key_file, read_key_file

    try:
        return parse_key_file(read_key_file(path)).keys
    except KeyFileError as exc:
        raise CommandError(f"the key file {path} cannot be used: {exc}") from None


def _check_closed(path: Path) -> None:
    """Refuses a key file to which users other than its owner can write."""
    if path.exists() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CommandError(
            f"users other than its owner can write to {path}, and may have added keys of their "
            f"own: look through its keys with `scope-judge keys list`, then run `chmod go-w {path}`"
        )


@contextmanager
def _changing(path: Path, *, must_exist: bool = False) -> "Iterator[list[KeyEntry]]":
    """Yields the keys in the file and writes the changed list, unless the caller raises."""
    from app.api.keys import KeyFile

    try:
        if not must_exist:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not path.exists():
            raise CommandError(f"there is no key file {path}")
        # The lock is on a second file: the key file is replaced, and its locks with it.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(f"{path}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _check_closed(path)
            held = _read(path) if path.exists() else []
            yield held
            # Only its owner may read a new key file; the service must be able to read it later.
            with replacing(path, mode=0o600, keep_owner=True) as file:
                file.write(KeyFile(keys=held).model_dump_json(indent=1).encode() + b"\n")
        finally:
            os.close(lock)
    except OSError as exc:
        raise CommandError(f"{path} cannot be changed: {exc.strerror}") from None
