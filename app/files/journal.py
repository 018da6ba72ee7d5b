"""Files that one process appends lines to, durably, and the journal of an unfinished run."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from app.core.errors import InvalidRequestError

_FIRST_BEGINS = b'{"scope_judge_run": '
_SYNC_EVERY_S = 1.0


class LineFile:
    """An open, locked file of lines. Those that were appended survive the end of the process.

    A process that was killed may leave a last line that was cut off: it is removed when the file is
    opened, unless the first line shows that the file belongs to somebody else.

    `lines` has those that were there when it was opened. The file is created if it does not exist,
    and must not be a symbolic link.

    Args:
        path: The file, in a folder that exists.
        begins: Beginning of the first line.
        foreign: Message if it begins otherwise.

    Raises:
        InvalidRequestError: The file cannot be opened, another process writes it, or it belongs to
            somebody else. It is then unchanged.
    """

    def __init__(self, path: Path, *, begins: bytes, foreign: str) -> None:
        self.path = path

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | os.O_NOFOLLOW, 0o666)

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
                raise InvalidRequestError(f"{path} is not a regular file")
            self._lock()
            self._file.seek(0)
            *lines, cut = self._file.read().split(b"\n")
            self.lines: Sequence[bytes] = lines
            first = (*lines, cut)[0]
            if not first.startswith(begins[: len(first)]):
                raise InvalidRequestError(f"{path} {foreign}")
            if cut:
                self._file.truncate(sum(len(line) + 1 for line in lines))
            on_failure.pop_all()

    def close(self) -> None:
        """Closes the file and releases the lock."""
        self._file.close()

    def clear(self) -> None:
        """Removes all lines."""
        self._file.truncate(0)

    def append(self, text: str, *, sync: bool = True) -> None:
        """Appends whole lines of ASCII; with `sync`, they survive a power failure, too.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        content = text.encode("ascii")
        end = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(content)
            if sync:
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


class Journal:
    """The results of an unfinished run by key, so that the same command can resume it.

    The first line has the settings of the run; every other line has a key and its result.

    Args:
        file: As for `LineFile`.
        settings: Everything that the results depend on beside their keys.
        replace: Drop the results of a run with other settings.

    Raises:
        InvalidRequestError: It is not a journal, its settings are others, or as for `LineFile`.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], *, replace: bool = False) -> None:
        self.file = file
        self._next_sync_s = 0.0
        self.results: dict[str, dict[str, Any]] = {}
        self._lines = LineFile(
            file,
            begins=_FIRST_BEGINS,
            foreign="was not written by this command: move it away, or name another output",
        )
        with ExitStack() as on_failure:
            on_failure.callback(self._lines.close)
            self._begin(json.loads(json.dumps(settings)), replace=replace)
            on_failure.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self.results:
            # There is nothing to resume. The file may be gone: `remove` was called.
            with suppress(FileNotFoundError):
                self.remove()
        self._lines.close()

    def append(self, key: str, result: dict[str, Any]) -> None:
        """Appends a result. It survives the end of the process; a power failure, after a second."""
        now = time.monotonic()
        sync = now >= self._next_sync_s
        self._lines.append(json.dumps({"key": key, "result": result}) + "\n", sync=sync)
        if sync:
            self._next_sync_s = now + _SYNC_EVERY_S
        self.results[key] = result

    def remove(self) -> None:
        """Removes the file; the lock is held until the journal is closed."""
        self.file.unlink()

    def _begin(self, settings: dict[str, Any], *, replace: bool) -> None:
        earlier = self._read(self._lines.lines)
        if earlier == settings:
            return
        if earlier is not None and not replace:
            changed = sorted(
                name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name)
            )
            raise InvalidRequestError(
                f"{self.file} has {len(self.results)} results of a run with other settings "
                f"({', '.join(changed)}): repeat that command to resume it, or give --overwrite to "
                "start over"
            )
        self.results = {}
        self._lines.clear()
        self._lines.append(json.dumps({"scope_judge_run": settings}) + "\n")

    def _read(self, lines: Sequence[bytes]) -> dict[str, Any] | None:
        """Reads the results; returns the settings, or None if the journal is new."""
        if not lines:
            return None
        try:
            settings: dict[str, Any] = json.loads(lines[0])["scope_judge_run"]
            self.results = {row["key"]: row["result"] for row in map(json.loads, lines[1:])}
        except (ValueError, KeyError, TypeError):
            raise InvalidRequestError(
                f"{self.file} is damaged: move it away to start over"
            ) from None
        return settings
