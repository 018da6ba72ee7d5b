"""Writes a file atomically and durably; it can replace another one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

# The end of a temporary file's name; a killed process may leave such a file.
UNFINISHED = ".new"


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, keep_owner: bool = False) -> Iterator[IO[bytes]]:
    """Yields a file that takes the place of `path` when the block ends; its mode stays.

    If the block raises, or the file cannot be written (OSError), an earlier file is unchanged. A
    symbolic link is replaced, and its target is not. `mode` is that of a new file.
    """
    # In the same folder, because a file cannot be moved to another disk at once.
    new = path.with_name(f".{secrets.token_hex(8)}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # Nobody may open the file before it has the mode of the earlier one.
    descriptor = os.open(new, flags, 0o600 if path.exists() else mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _take_after(path, descriptor, keep_owner=keep_owner)
            yield file
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    finally:
        # After an error, do not leave a part of it on a full disk.
        with suppress(OSError):
            new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def replace_text(path: Path, text: str) -> None:
    """Writes a text, atomically; a lone surrogate, which cannot be encoded, becomes "?"."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", errors="replace"))


def _take_after(path: Path, descriptor: int, *, keep_owner: bool) -> None:
    with suppress(FileNotFoundError):
        old, new = path.stat(), os.fstat(descriptor)
        os.fchmod(descriptor, old.st_mode & 0o777)
        if keep_owner and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)
