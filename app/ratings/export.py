"""The ratings as a table: leaderboard.csv, and the files inside the page."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import csv

from app.core.printable import encodable
from app.files.replacing import replacing
from app.ratings.results import LeaderboardResults


def write_csv(results: LeaderboardResults, path: Path) -> None:
    """Writes one row for each view and model; a file that was there is replaced as a whole.

    Args:
        results: The results.
        path: File to write or replace.

    Raises:
        OSError: The file cannot be written.
    """
    with replacing(path) as file:
        file.write(csv_of(rating_rows(results)))


def rating_rows(results: LeaderboardResults) -> list[dict[str, Any]]:
    """One row for each view and model."""
    board = results.board
    return [
        {"judge": board.judge, "view": view.name, **asdict(rating)}
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
