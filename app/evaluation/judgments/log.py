"""The file that `evaluate` writes: appended to while it judges, read again by the next run."""

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from app.core.errors import InvalidRequestError
from app.evaluation.judgments.jsonl import LINE_BEGINS, JudgedPair, judgment_line, read_judgments


class JudgmentLog:
    """An append-only judgments.jsonl that only one process writes.

    Every `append` is in the file when it returns, whatever kills the process; a line that was cut
    off in the middle is removed by the next one that opens the file.

    Args:
        file: Made where it is not there; its folder must be.
        judge: Whose answers it holds.

    Raises:
        InvalidRequestError: Another process writes it, it cannot be opened, or it holds something
            else than this judge's answers; nothing has changed then.
    """

    def __init__(self, file: Path, *, judge: str) -> None:
        self._name, self._judge = file, judge
        try:
            # Unbuffered: what could not be written must not be tried again at the end.
            self._file = file.open("ab+", buffering=0)
        except OSError as exc:
            raise InvalidRequestError(f"{file} cannot be opened: {exc.strerror}") from None
        # A forked child, such as an engine's, would hold the lock after this process is killed.
        os.register_at_fork(after_in_child=self._file.close)
        with ExitStack() as on_failure:
            on_failure.callback(self._file.close)
            self._lock()
            self._remove_cut_line()
            on_failure.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def read(self) -> dict[tuple[str, str], JudgedPair]:
        """What is there, by data set and id.

        Raises:
            InvalidRequestError: A line is none that `evaluate` wrote, or of another judge.
        """
        pairs = read_judgments(self._name).pairs
        for pair in pairs:
            if pair.judge != self._judge:
                raise InvalidRequestError(
                    f"{self._name} holds judgments of {pair.judge or 'an unknown judge'}, not of "
                    f"{self._judge}: give another --out"
                )
        return {(pair.dataset, pair.id): pair for pair in pairs}

    def append(self, pairs: Iterable[JudgedPair]) -> None:
        """Adds a line for each pair, durably.

        Raises:
            InvalidRequestError: The file cannot be written; what was there before is kept.
        """
        content = "".join(map(judgment_line, pairs)).encode("ascii")
        whole = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(content)
            os.fsync(self._file.fileno())
            if written != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            # Others may still append: half a line would join with theirs.
            self._file.truncate(whole)
            raise InvalidRequestError(f"{self._name} cannot be written: {exc.strerror}") from None

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidRequestError(f"{self._name} is being written by another process") from None

    def _remove_cut_line(self) -> None:
        """Only of a file that is ours: somebody's last line may lack its end and be whole."""
        self._file.seek(0)
        content = self._file.read()
        lines = content.split(b"\n")
        if not all(line.startswith(LINE_BEGINS[: len(line)]) for line in lines):
            raise InvalidRequestError(
                f"{self._name} is no file that evaluate wrote: give another --out, or evaluate it "
                "with --from"
            )
        if lines[-1]:
            self._file.truncate(len(content) - len(lines[-1]))
