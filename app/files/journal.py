"""The results of an unfinished run, kept durably so that the same command can go on."""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from app.core.errors import InvalidRequestError

_BEGINS = b'{"scope_judge_run": '


class Journal:
    """An append-only file of results by key, with a single writing process.

    The first line has the settings of the run; every other line has a key and its result. Results
    are durable when `append` returns, even if the process is killed afterwards. The next process
    that opens the file removes a line that was cut off in the middle.

    Args:
        file: Created if it does not exist; its folder must exist.
        settings: Everything that the results depend on beside their keys.
        replace: Drop the results of a run with other settings.

    Raises:
        InvalidRequestError: Another process writes the file, it cannot be opened, it is no journal,
            or its settings are others. The file is then unchanged.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], *, replace: bool = False) -> None:
        self.file = file
        self.results: dict[str, dict[str, Any]] = {}
        try:
            # Unbuffered: after a failed write, closing the file must not write the rest.
            self._opened = os.fdopen(
                os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666),
                "ab+",
                buffering=0,
            )
        except OSError as exc:
            raise InvalidRequestError(f"{file} cannot be opened: {exc.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(self._opened.fileno()).st_mode):
                raise InvalidRequestError(f"{file} is no regular file")
            self._lock()
            self._begin(json.loads(json.dumps(settings)), replace=replace)
        except BaseException:
            self._opened.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self.results:
            # Nothing to go on with. The file may be gone: `remove` was called.
            with suppress(FileNotFoundError):
                self.remove()
        self._opened.close()

    def append(self, results: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Appends results, durably.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        new = dict(results)
        lines = [json.dumps({"key": key, "result": result}) for key, result in new.items()]
        self._write("".join(f"{line}\n" for line in lines).encode("ascii"))
        self.results |= new

    def remove(self) -> None:
        """Removes the file; the lock is held until the journal is closed."""
        self.file.unlink()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that has just ended removed the file after it was opened here.
            if not os.path.samestat(os.fstat(self._opened.fileno()), self.file.stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise InvalidRequestError(f"another run is writing {self.file}") from None

    def _begin(self, settings: dict[str, Any], *, replace: bool) -> None:
        content = self._opened.read() if self._opened.seek(0) == 0 else b""
        if not content.startswith(_BEGINS[: len(content)]):
            raise InvalidRequestError(
                f"{self.file} was not written by this command: move it away, or name another output"
            )
        *lines, cut = content.split(b"\n")
        if not lines:
            self._opened.truncate(0)
            self._write(_first_line(settings))
            return
        if cut:
            self._opened.truncate(len(content) - len(cut))
        try:
            earlier = json.loads(lines[0])["scope_judge_run"]
            self.results = {row["key"]: row["result"] for row in map(json.loads, lines[1:])}
        except (ValueError, KeyError, TypeError):
            raise InvalidRequestError(
                f"{self.file} is damaged: move it away to begin again"
            ) from None
        if earlier == settings:
            return
        if replace:
            self.results = {}
            self._opened.truncate(0)
            self._write(_first_line(settings))
        else:
            changed = sorted(
                name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name)
            )
            raise InvalidRequestError(
                f"{self.file} has {len(self.results)} results of a run with other settings "
                f"({', '.join(changed)}): repeat that command to go on with it, or give "
                "--overwrite to begin again"
            )

    def _write(self, content: bytes) -> None:
        end = self._opened.seek(0, os.SEEK_END)
        try:
            written = self._opened.write(content)
            os.fsync(self._opened.fileno())
            if written != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            # Remove the partial line: the next append would continue it.
            self._opened.truncate(end)
            raise InvalidRequestError(f"{self.file} cannot be written: {exc.strerror}") from None


def _first_line(settings: Mapping[str, Any]) -> bytes:
    return _BEGINS + json.dumps(settings).encode("ascii") + b"}\n"
