"""rounds.npz: the ratings of each round of the bootstrap, for the changes to a later board.

It has a digest of each question, and no question, response or judgment.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.core.errors import InvalidRequestError
from app.files.replacing import replacing
from app.ratings.bootstrap import Keys
from app.ratings.bradley_terry import Floats
from app.ratings.results import VIEWS, Board, ViewName

ROUNDS_NAME = "rounds.npz"
_MADE = "made"


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The bootstrap of a board.

    Args:
        keys: Shape (units,). Keys of the units that have a name, in ascending order.
        theta: For each view shape (rounds, models): ratings in logits, for the models in the order
            of Board.models. Their zero is free.
    """

    keys: Keys
    theta: Mapping[ViewName, Floats]


@dataclass(frozen=True, kw_only=True)
class RatedBoard:
    """A board and its bootstrap."""

    board: Board
    rounds: Rounds


def write_rounds(path: Path, rounds: Sequence[Rounds], *, made: str) -> None:
    """Writes the bootstraps of all boards.

    Args:
        path: The file.
        rounds: The bootstrap of each board, in the order of the boards.
        made: Time of the run, by which a reader knows that the results belong to it.

    Raises:
        OSError: The file cannot be written; an earlier one is unchanged.
    """
    arrays = {_MADE: np.array(made)}
    for number, each in enumerate(rounds):
        arrays[f"{number}.keys"] = each.keys
        # Seven digits of a rating are more than a bootstrap knows.
        views = {f"{number}.{name}": theta.astype(np.float32) for name, theta in each.theta.items()}
        arrays |= views
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    with replacing(path) as file:
        file.write(content.getvalue())


def read_rounds(path: Path, boards: Sequence[Board], *, made: str) -> tuple[Rounds, ...]:
    """The bootstraps of the boards of earlier results.

    Args:
        path: The file.
        boards: The boards.
        made: Time of the run that made them.

    Returns:
        One for each board; none if there is no file, as with versions up to 0.3.0, or if another
        run wrote it.

    Raises:
        InvalidRequestError: The file is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays[_MADE]) != made:
                return ()
            return tuple(_rounds(arrays, number, board) for number, board in enumerate(boards))
    except FileNotFoundError:
        return ()
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        raise InvalidRequestError(
            f"{path} cannot be read: run `scope-judge leaderboard` on its rows again"
        ) from None


def _rounds(arrays: Mapping[str, Floats], number: int, board: Board) -> Rounds:
    theta = {name: arrays[f"{number}.{name}"] for name in VIEWS if name in board.views}
    if any(each.ndim != 2 or each.shape[1] != len(board.models) for each in theta.values()):
        raise ValueError("the rounds are of other models")
    return Rounds(keys=arrays[f"{number}.keys"].astype(np.uint64), theta=theta)
