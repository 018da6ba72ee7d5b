"""Files of a leaderboard beside its page: the table, and rows for other raters."""

import io
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import csv

from app.core.printable import encodable
from app.files.replacing import replacing
from app.files.writing import replace_file
from app.ratings.battles import Battles
from app.ratings.bradley_terry import Floats
from app.ratings.outcomes import Outcomes, views_of
from app.ratings.results import Board, LeaderboardResults

_WHOLE = (0.0, 0.5, 1.0)
_ARENA_WORDS = ("model_b", "tie", "model_a")
_EVALICA_WORDS = ("right", "tie", "left")


def write_csv(results: LeaderboardResults, path: Path, *, excel: bool) -> None:
    """Writes one row for each judge, view and model; a file that was there is replaced as a whole.

    Args:
        results: The results.
        path: File to write or replace.
        excel: Write a table that Excel opens; see `app.files.writing.replace_file`.

    Raises:
        OSError: The file cannot be written.
    """
    rows = rating_rows(results)
    if excel:
        replace_file(path, rows, excel=True)
        return
    with replacing(path) as file:
        file.write(csv_of(rows))


def rating_rows(results: LeaderboardResults) -> list[dict[str, Any]]:
    """One row for each judge, view and model."""
    return [
        {"judge": board.judge, "view": view.name, **asdict(rating)}
        for board in (results.board, *results.other_boards)
        for view in board.views.values()
        for rating in view.ratings
    ]


def csv_of(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV in UTF-8; lone surrogates are escaped."""
    encodable_rows = [
        {key: encodable(value) if isinstance(value, str) else value for key, value in row.items()}
        for row in rows
    ]
    content = io.BytesIO()
    csv.write_csv(pyarrow.Table.from_pylist(encodable_rows), content)
    return content.getvalue()


def _replace_csv(path: Path, table: pyarrow.Table) -> None:
    with replacing(path) as file:
        csv.write_csv(table, file)


def write_rows(battles: Battles, board: Board, folder: Path) -> list[Path]:
    """Writes the outcomes of each view but "people" for arena-rank, and for evalica where whole.

    arena-rank reads the columns model_a, model_b and winner. Real outcomes are numbers in `winner`:
    pass `outcome_map=float`. evalica reads left, right and winner. Neither knows weights, so the
    judge has the weight 1 in "debiased".

    Returns:
        The files.

    Raises:
        OSError: A file cannot be written.
    """
    written = []
    for name, outcomes in views_of(battles).items():
        if name in board.views and name != "people":
            for path, table in _tables(battles, outcomes, folder, name):
                _replace_csv(path, table)
                written.append(path)
    return written


def _tables(
    battles: Battles, outcomes: Outcomes, folder: Path, name: str
) -> Iterator[tuple[Path, pyarrow.Table]]:
    counted = outcomes.counted
    names = pyarrow.array(battles.models)
    first, second = (names.take(side[counted]) for side in (battles.first, battles.second))
    outcome = outcomes.outcome[counted]
    whole = bool(np.isin(outcome, _WHOLE).all())
    winner = _words(outcome, _ARENA_WORDS) if whole else outcome
    yield (
        folder / f"arena-rank-{name}.csv",
        pyarrow.table({"model_a": first, "model_b": second, "winner": winner}),
    )
    if whole:
        winner = _words(outcome, _EVALICA_WORDS)
        yield (
            folder / f"evalica-{name}.csv",
            pyarrow.table({"left": first, "right": second, "winner": winner}),
        )


def _words(outcome: Floats, words: tuple[str, str, str]) -> pyarrow.Array:
    return pyarrow.array(words).take((2.0 * outcome).astype(np.int64))
