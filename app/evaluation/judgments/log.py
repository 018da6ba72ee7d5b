"""The file judgments.jsonl, which `evaluate` appends to and reads again in the next run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from app.core.errors import InvalidRequestError
from app.evaluation.judgments.jsonl import LINE_BEGINS, judgment_line, read_judgments
from app.evaluation.judgments.record import JudgedPair
from app.files.journal import LineFile


class JudgmentLog:
    """An append-only judgments.jsonl with a single writing process.

    Args:
        file: Created if it does not exist; its folder must exist.
        judge: Name of the judge whose answers the file holds.

    Raises:
        InvalidRequestError: Another process writes the file, it cannot be opened, or `evaluate` did
            not write it. The file is then unchanged.
    """

    def __init__(self, file: Path, *, judge: str) -> None:
        self._judge = judge
        self._lines = LineFile(
            file,
            first_begins=LINE_BEGINS,
            later_begin=LINE_BEGINS,
            foreign="was not written by evaluate: give another --out, or evaluate this file with "
            "--from",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._lines.close()

    def read(self) -> dict[tuple[str, str], JudgedPair]:
        """All pairs of the file, by data set and id.

        Raises:
            InvalidRequestError: A line does not have the format of judgments.jsonl, or holds the
                answers of another judge.
        """
        file = self._lines.path
        if not file.stat().st_size:
            return {}
        pairs = read_judgments([file]).pairs
        for pair in pairs:
            if pair.judge != self._judge:
                raise InvalidRequestError(
                    f"{file} holds judgments of {pair.judge or 'an unknown judge'}, not of "
                    f"{self._judge}: give another --out"
                )
        return {(pair.dataset, pair.id): pair for pair in pairs}

    def append(self, pairs: Iterable[JudgedPair]) -> None:
        """Appends a line for each pair, durably.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        self._lines.append("".join(map(judgment_line, pairs)))
