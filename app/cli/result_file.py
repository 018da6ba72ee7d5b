"""The file that `--out` names: replaced as a whole, once every result is in it."""

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
# Links to what a shell has opened: the file behind one must not be replaced.
_OPENED_BY_THE_SHELL = ("/dev/stderr", "/dev/fd/", "/proc/")


@contextmanager
def result_file(path: Path) -> Iterator[TextIO]:
    """Writes a text file that replaces `path` once the block has ended without an error.

    The results are collected in `path`.partial. If the block is stopped, `path` is as it was,
    and a message says where the results so far are. A pipe or a device is written directly.
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
    """Says whether writing `out` destroys the file that is read; - is stdin."""
    try:
        source = os.stat(0 if str(read) == "-" else read)
        targets = [path.stat() for path in (out, _partial_of(out.resolve())) if path.exists()]
    except OSError:
        # Reading or writing it will fail, with its own message.
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
    # A link stays a link: the file that it names is replaced.
    target = path.resolve()
    partial = _partial_of(target)
    file = _opened(partial, target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # Still locked: another run may not take the partial file before it is renamed.
            partial.replace(target)
    except BaseException:
        _tell_of(partial, path)
        raise


def _opened(partial: Path, target: Path) -> TextIO:
    """The empty partial file, locked, with the rights that the target has."""
    earlier = target.stat() if target.exists() else None
    if earlier is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    # Not truncated here: it may be another run's.
    rights = 0o666 if earlier is None else stat.S_IMODE(earlier.st_mode)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, rights)
    file = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 - the caller closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The other run may have renamed it between the opening and the lock.
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


def _tell_of(partial: Path, path: Path) -> None:
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
