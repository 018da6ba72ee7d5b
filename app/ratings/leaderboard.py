"""A leaderboard from battles, and its files.

results.json has every number, and leaderboard.csv the ratings of all views. rounds.npz has the
ratings of each round of the bootstrap, for the changes to a later board: a digest of each question,
and no question, response or judgment.
"""

import io
import json
import zipfile
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import csv
from pydantic import TypeAdapter

from app import __version__
from app.core.errors import InvalidRequestError
from app.core.printable import encodable
from app.files.replacing import replace_text, replacing
from app.ratings.battles import Battles
from app.ratings.board import Leaderboard, Rounds, rated
from app.ratings.changes import changes_of
from app.ratings.results import FORMAT, VIEWS, Board, LeaderboardResults, RatingSettings

RESULTS_NAME, ROUNDS_NAME, TABLE_NAME = "results.json", "rounds.npz", "leaderboard.csv"
_MADE, _KEYS = "made", "keys"
_RESULTS = TypeAdapter(LeaderboardResults)
_OF_BOARD = frozenset(field.name for field in fields(Board))


def leaderboard_from(
    battles: Battles, settings: RatingSettings, *, made: str, against: Path | None = None
) -> Leaderboard:
    """Rates the models, and compares them with the previous results in the folder `against`.

    Raises:
        InvalidRequestError: The settings do not fit the battles, or there are no previous results.
    """
    previous = None if against is None else read_leaderboard(against)
    board, rounds = rated(battles, settings)
    results = LeaderboardResults(version=__version__, made=made, settings=settings, board=board)
    found = Leaderboard(results, rounds)
    if previous is None or against is None:
        return found
    changes = changes_of(found, previous, against)
    return Leaderboard(replace(results, changes=changes), rounds)


def write_leaderboard(leaderboard: Leaderboard, folder: Path) -> None:
    """Writes results.json, leaderboard.csv and rounds.npz.

    Raises:
        OSError: A file cannot be written.
    """
    results = leaderboard.results
    replace_text(folder / RESULTS_NAME, results_text(results))
    with replacing(folder / TABLE_NAME) as file:
        csv.write_csv(pyarrow.Table.from_pylist(_rating_rows(results)), file)
    arrays = {_MADE: np.array(results.made), _KEYS: leaderboard.rounds.keys}
    # Seven digits of a rating are more than a bootstrap knows.
    theta = {name: each.astype(np.float32) for name, each in leaderboard.rounds.theta.items()}
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays, **theta)
    with replacing(folder / ROUNDS_NAME) as file:
        file.write(content.getvalue())


def _rating_rows(results: LeaderboardResults) -> list[dict[str, Any]]:
    """One row for each view and model; lone surrogates are escaped."""
    board = results.board
    rows = (
        {"judge": board.judge, "view": view.name, **asdict(rating)}
        for view in board.views.values()
        for rating in view.ratings
    )
    return [
        {key: encodable(value) if isinstance(value, str) else value for key, value in row.items()}
        for row in rows
    ]


def results_text(results: LeaderboardResults) -> str:
    """The text of results.json: the fields of the results, and those of the board beside them.

    Raises:
        ValueError: A number is not finite.
    """
    whole = asdict(results)
    board = whole.pop("board")
    return json.dumps({**board, **whole}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def read_leaderboard(folder: Path) -> Leaderboard:
    """The leaderboard in a folder.

    Raises:
        InvalidRequestError: There is none, or it cannot be read.
    """
    file = folder / RESULTS_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidRequestError(f"{file} cannot be read: name a folder of `--out`") from None
    results = results_of(text, str(file))
    return Leaderboard(results, _read_rounds(folder / ROUNDS_NAME, results))


def results_of(text: str, name: str) -> LeaderboardResults:
    """The results in the text of a results.json, which messages call by its name.

    Raises:
        InvalidRequestError: The text is not a results.json of this version of the format.
    """
    try:
        content = json.loads(text)
        if content.get("format") != FORMAT:
            raise InvalidRequestError(
                f"{name} has the format {content.get('format')!r}, but this version reads "
                f"{FORMAT}: run `scope-judge leaderboard` on its rows again"
            )
        board = {key: content.pop(key) for key in _OF_BOARD & content.keys()}
        return _RESULTS.validate_python({**content, "board": board})
    except (ValueError, AttributeError):
        raise InvalidRequestError(f"{name} is not a results.json of a leaderboard") from None


def _read_rounds(path: Path, results: LeaderboardResults) -> Rounds:
    board = results.board
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            theta = {name: arrays[name] for name in VIEWS if name in board.views}
            shapes_fit = all(each.shape[1:] == (len(board.models),) for each in theta.values())
            if shapes_fit and str(arrays[_MADE]) == results.made:
                return Rounds(keys=arrays[_KEYS].astype(np.uint64), theta=theta)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        pass
    raise InvalidRequestError(
        f"{path} cannot be read, or is of another run than {RESULTS_NAME}: run `scope-judge "
        "leaderboard` on its rows again"
    )
