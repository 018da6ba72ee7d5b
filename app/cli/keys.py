"""`scope-judge keys add | list | revoke`: edits the file of API keys atomically."""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.console import console, failure

# The help of a command needs its options only: functions import what reads the file of keys.
if TYPE_CHECKING:
    from app.api.auth.keys import KeyEntry

app = typer.Typer(help="Make, list and revoke the keys of the service.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the key's owner: letters, digits and . _ -")]
File = Annotated[
    Path | None,
    typer.Option(envvar="SCOPE_API_KEYS_FILE", help="The file of keys that the service reads."),
]


@app.command()
def add(
    name: Name,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="judge, calibrate, admin (delete, roll back) or metrics (read /metrics); give it "
            "again for more."
        ),
    ] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option(help="Only these calibration sets; give it again for more. All if left out."),
    ] = None,
    file: File = None,
) -> None:
    """Make a key and print it; the file keeps only its hash.

    A key without a role may only read /info and the calibration sets.
    """
    from app.api.auth.keys import KeyFileError, hash_of, key_entry, new_key

    path = _path(file)
    if calibration and "metrics" in (role or ()):
        raise failure(
            "no key was made: /metrics shows every calibration set, so leave --calibration out, or "
            "make a separate key for metrics"
        )
    key = new_key()
    try:
        entry = key_entry(
            name=name,
            sha256=hash_of(key.encode()).hex(),
            roles=list(dict.fromkeys(role or ())),
            calibrations=list(dict.fromkeys(calibration)) if calibration else None,
            created=datetime.now(UTC).replace(microsecond=0),
        )
    except KeyFileError as exc:
        raise failure(f"no key was made: {exc}") from None
    with _changing(path) as held:
        if any(each.name == name for each in held):
            raise failure(
                f"{path} already has a key named {name}: use another name, or revoke that key "
                f"first with `scope-judge keys revoke {name}`"
            )
        held.append(entry)
    print(key, flush=True)
    _say(f"{name} may: {', '.join(entry.roles) or 'only read'}; calibration sets: {_sets(entry)}.")
    _say(
        "This is the only time the key is shown. Send it as `Authorization: Bearer KEY`; "
        "`scope-judge judge`, `calibrate` and `sets` read it from SCOPE_API_KEY."
    )
    _say(
        f"Start the service with SCOPE_API_KEYS_FILE={path}; a running service with this file "
        "accepts the key within a second."
    )


@app.command(name="list")
def list_keys(file: File = None) -> None:
    """List the keys as a table, or on a pipe as tab-separated lines."""
    entries = _read(_path(file))
    if not _on_a_terminal():
        for each in entries:
            cells = (each.name, ",".join(each.roles) or "-", _sets(each), each.created.isoformat())
            print("\t".join(cells))
        return
    table = Table()
    for heading in ("name", "roles", "calibrations", "created"):
        table.add_column(heading, overflow="fold")
    for each in entries:
        created = f"{each.created:%Y-%m-%d %H:%M %Z}"
        table.add_row(each.name, ", ".join(each.roles) or "only reads", _sets(each), created)
    Console().print(table)


@app.command()
def revoke(name: Name, file: File = None) -> None:
    """Revoke a key; a running service refuses it within a second."""
    path = _path(file)
    with _changing(path, must_exist=True) as held:
        kept = [each for each in held if each.name != name]
        if len(kept) == len(held):
            raise failure(f"{path} has no key named {name}: `scope-judge keys list` shows them")
        held[:] = kept
    _say(f"{name} is revoked.")
    if not kept:
        _say("No key is left: the service lets nobody in.")


def _on_a_terminal() -> bool:
    return sys.stdout.isatty()


def _sets(entry: "KeyEntry") -> str:
    # No calibration set can be named "*" or "-".
    return "*" if entry.calibrations is None else ",".join(entry.calibrations) or "-"


def _say(text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)


def _path(file: Path | None) -> Path:
    if file is None:
        raise failure("no file of keys is named: set SCOPE_API_KEYS_FILE, or give --file")
    # The target of a symbolic link is replaced, not the link.
    return file.resolve()


def _read(path: Path) -> "list[KeyEntry]":
    from app.api.auth.keys import KeyFileError, parse_key_file, read_key_file

    try:
        return parse_key_file(read_key_file(path)).keys
    except KeyFileError as exc:
        raise failure(f"the file of keys {path} cannot be used: {exc}") from None


@contextmanager
def _changing(path: Path, *, must_exist: bool = False) -> "Iterator[list[KeyEntry]]":
    """Yields the keys in the file and writes the changed list, unless the caller raises."""
    from app.api.auth.keys import KeyFile

    try:
        if not must_exist:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not path.exists():
            raise failure(f"there is no file of keys {path}")
        # The lock is on a second file: the file of keys is replaced, and its locks with it.
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = _read(path) if path.exists() else []
            yield held
            _replace(path, KeyFile(keys=held).model_dump_json(indent=1).encode() + b"\n")
        finally:
            os.close(lock)
    except OSError as exc:
        raise failure(f"{path} cannot be changed: {exc.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    """Replaces the file atomically and durably."""
    # mkstemp makes the file readable for its owner only, and a new file of keys stays so.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _take_after(path, file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _take_after(path: Path, descriptor: int) -> None:
    """Copies mode and owner of the file that is replaced, so that the service can read it."""
    with suppress(FileNotFoundError):
        old, new = path.stat(), os.fstat(descriptor)
        os.fchmod(descriptor, old.st_mode & 0o7777)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)
