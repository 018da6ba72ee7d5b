"""The file of `--out`: replaced as a whole once it has every result."""

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.markup import escape

from app.cli.console import console, failure

_STDOUT = ("-", "/dev/stdout")
# Links to files that a shell has opened: such a file must be written, not replaced.
_OPENED_BY_THE_SHELL = ("/dev/stderr", "/dev/fd/", "/proc/")


@contextmanager
def result_file(path: Path) -> Iterator[TextIO]:
    """Yields a text file that replaces `path` once the block has ended without an error.

    The results are collected in `path`.partial. If the block fails, `path` is unchanged, and a
    message says where the results so far are. A pipe or a device is written directly.

    Raises:
        typer.Exit: The file cannot be written, or another run is writing it.
    """
    if str(path) in _STDOUT:
        yield sys.stdout
        return
    try:
        if _can_be_replaced(path):
            with _replacing(path) as file:
                yield file
        else:
            with path.open("w", encoding="utf-8") as file:
                yield file
    except OSError as exc:
        raise failure(f"{path} cannot be written: {exc.strerror}") from None


def would_overwrite(read: Path, out: Path) -> bool:
    """Whether writing `out` destroys the file that is read; - is stdin."""
    try:
        source = os.stat(0 if str(read) == "-" else read)
        targets = [path.stat() for path in (out, _partial_of(out.resolve())) if path.exists()]
    except OSError:
        # Reading or writing the file will fail with a message of its own.
        return False
    return stat.S_ISREG(source.st_mode) and any(os.path.samestat(source, each) for each in targets)


def _can_be_replaced(path: Path) -> bool:
    if str(path).startswith(_OPENED_BY_THE_SHELL):
        return False
    return path.is_file() or not path.exists()


def _partial_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    # The target of a symbolic link is replaced, not the link.
    target = path.resolve()
    partial = _partial_of(target)
    file = _opened(partial, target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # Renamed with the lock held, so that no other run takes the partial file first.
            partial.replace(target)
    except BaseException:
        _report_partial(partial, path)
        raise


def _opened(partial: Path, target: Path) -> TextIO:
    """Opens the empty partial file, locked, with the target's mode and owner."""
    earlier = target.stat() if target.exists() else None
    if earlier is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    # Truncated only once it is locked: it may belong to another run.
    rights = 0o666 if earlier is None else stat.S_IMODE(earlier.st_mode)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, rights)
    file = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 - the caller closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another run may have renamed the file after it was opened here.
        if not os.path.samestat(os.fstat(descriptor), partial.stat()):
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError):
        file.close()
        raise failure(f"another run is writing {partial}") from None
    file.truncate()
    if earlier is not None:
        with suppress(PermissionError):
            os.fchown(descriptor, earlier.st_uid, earlier.st_gid)
        os.fchmod(descriptor, rights)
    return file


def _report_partial(partial: Path, path: Path) -> None:
    """Says where the results so far are; removes the partial file if there are none."""
    with suppress(OSError):
        if not partial.stat().st_size:
            partial.unlink()
            return
        kept = "changed" if path.exists() else "made"
        console.print(
            f"[yellow]stopped:[/] the results so far are in {escape(str(partial))}; "
            f"{escape(str(path))} was not {kept}",
            highlight=False,
            soft_wrap=True,
        )
