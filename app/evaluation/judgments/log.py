"""The file judgments.jsonl, which `evaluate` appends to and reads again in the next run."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from app.core.errors import InvalidRequestError
from app.evaluation.judgments.jsonl import LINE_BEGINS, judgment_line, read_judgments
from app.evaluation.judgments.record import JudgedPair
from app.files.append_only import AppendOnlyFile


class JudgmentLog:
    """An append-only judgments.jsonl with a single writing process.

    Lines are durable when `append` returns, even if the process is killed afterwards. The next
    process that opens the file removes a line that was cut off in the middle.

    Args:
        file: Created if it does not exist; its folder must exist.
        judge: Name of the judge whose answers the file holds.

    Raises:
        InvalidRequestError: Another process writes the file, it cannot be opened, or `evaluate` did
            not write it. The file is then unchanged.
    """

    def __init__(self, file: Path, *, judge: str) -> None:
        self._name, self._judge = file, judge
        self._file = AppendOnlyFile(file)
        with ExitStack() as on_failure:
            on_failure.callback(self._file.close)
            self._remove_cut_line()
            on_failure.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def read(self) -> dict[tuple[str, str], JudgedPair]:
        """All pairs of the file, by data set and id.

        Raises:
            InvalidRequestError: A line does not have the format of judgments.jsonl, or holds the
                answers of another judge.
        """
        if not self._file.content():
            return {}
        pairs = read_judgments([self._name]).pairs
        for pair in pairs:
            if pair.judge != self._judge:
                raise InvalidRequestError(
                    f"{self._name} holds judgments of {pair.judge or 'an unknown judge'}, not of "
                    f"{self._judge}: give another --out"
                )
        return {(pair.dataset, pair.id): pair for pair in pairs}

    def append(self, pairs: Iterable[JudgedPair]) -> None:
        """Appends a line for each pair, durably.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        self._file.append("".join(map(judgment_line, pairs)).encode("ascii"))

    def _remove_cut_line(self) -> None:
        """Removes a last line without a line break, only if `evaluate` wrote the file.

        The last line of a user's file may be complete without a line break.
        """
        content = self._file.content()
        lines = content.split(b"\n")
        if not all(line.startswith(LINE_BEGINS[: len(line)]) for line in lines):
            raise InvalidRequestError(
                f"{self._name} was not written by evaluate: give another --out, or evaluate this "
                "file with --from"
            )
        if lines[-1]:
            self._file.truncate(len(content) - len(lines[-1]))
