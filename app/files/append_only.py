"""A file that one process appends to, durably."""

import errno
import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from app.core.errors import InvalidRequestError


class AppendOnlyFile:
    """An open, locked file whose bytes are durable when `append` returns.

    Args:
        path: Created if it does not exist; its folder must exist.
        follow_symlink: Whether the path may be a symbolic link.

    Raises:
        InvalidRequestError: The file cannot be opened, or another process writes it.
    """

    def __init__(self, path: Path, *, follow_symlink: bool = True) -> None:
        self.path = path
        more_flags = 0 if follow_symlink else os.O_NOFOLLOW

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | more_flags, 0o666)

        try:
            # Unbuffered: after a failed write, closing the file must not write the rest.
            self._file = open(path, "ab+", buffering=0, opener=opener)  # noqa: SIM115 - `close` does
        except OSError as exc:
            raise InvalidRequestError(f"{path} cannot be opened: {exc.strerror}") from None
        # A forked child, such as an engine's process, would keep the lock if this process is
        # killed.
        os.register_at_fork(after_in_child=self._file.close)
        with ExitStack() as on_failure:
            on_failure.callback(self._file.close)
            if not path.is_file():
                raise InvalidRequestError(f"{path} is no regular file")
            self._lock()
            on_failure.pop_all()

    def close(self) -> None:
        """Closes the file and gives the lock back."""
        self._file.close()

    def content(self) -> bytes:
        """The whole content."""
        self._file.seek(0)
        return self._file.read()

    def truncate(self, size: int) -> None:
        """Removes what follows the first `size` bytes."""
        self._file.truncate(size)

    def append(self, content: bytes) -> None:
        """Appends bytes, durably.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        end = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(content)
            os.fsync(self._file.fileno())
            if written != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            # Remove the partial line: the next append would continue it.
            self._file.truncate(end)
            raise InvalidRequestError(f"{self.path} cannot be written: {exc.strerror}") from None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last writer may have removed the file after it was opened here.
            if not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise InvalidRequestError(f"{self.path} is being written by another process") from None
