"""A leaderboard from files of battles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from app import __version__
from app.core.errors import InvalidRequestError
from app.ratings.battles import Battles
from app.ratings.board import rated
from app.ratings.changes import changes_of
from app.ratings.codec import results_of
from app.ratings.judges import judge_pairs
from app.ratings.notes import several_signatures
from app.ratings.results import Changes, LeaderboardResults, RatingSettings
from app.ratings.rounds import ROUNDS_NAME, RatedBoard, Rounds, read_rounds

RESULTS_NAME = "results.json"


class Leaderboard(NamedTuple):
    """The results of a leaderboard, and the bootstraps of its boards, for the next results."""

    results: LeaderboardResults
    rounds: tuple[Rounds, ...]


def results_from(
    battles: Sequence[Battles], settings: RatingSettings, *, made: str, against: Path | None = None
) -> LeaderboardResults:
    """The results of `leaderboard_from`."""
    return leaderboard_from(battles, settings, made=made, against=against).results


def leaderboard_from(
    battles: Sequence[Battles], settings: RatingSettings, *, made: str, against: Path | None = None
) -> Leaderboard:
    """Rates the models of each judge, and compares the judges.

    Args:
        battles: The battles of each judge, as `app.ratings.rows.read_battles` returns them.
        settings: Settings of the computation.
        made: Time of the run.
        against: Folder of previous results.

    Raises:
        InvalidRequestError: The settings do not fit the battles, or there are no previous results.
    """
    previous = None if against is None else previous_results(against)
    if previous is not None and not _are_comparable(previous.settings, settings):
        raise InvalidRequestError(
            f"{against} has another --control: give the same to compare scores"
        )
    all_rated = [rated(of_judge, settings) for of_judge in battles]
    boards = [each.board for each in all_rated]
    cause = several_signatures([board.signature for board in boards])
    if cause is not None:
        boards[0] = replace(boards[0], notes=(cause, *boards[0].notes))
    results = LeaderboardResults(
        version=__version__,
        made=made,
        settings=settings,
        board=boards[0],
        other_boards=tuple(boards[1:]),
        judges=judge_pairs(list(battles), boards),
        changes=None
        if previous is None or against is None
        else _changes(all_rated[0], settings, previous, against),
    )
    return Leaderboard(results, tuple(each.rounds for each in all_rated))


def _changes(
    now: RatedBoard, settings: RatingSettings, previous: LeaderboardResults, against: Path
) -> Changes:
    folder = against if against.is_dir() else against.parent
    boards = (previous.board, *previous.other_boards)
    rounds = read_rounds(folder / ROUNDS_NAME, boards, made=previous.made)
    return changes_of(now, settings, previous, rounds, against)


def _are_comparable(before: RatingSettings, now: RatingSettings) -> bool:
    """Whether scores of two runs have the same scale and the same covariates."""
    kinds = ((settings.control, settings.scale, settings.prior_sd) for settings in (before, now))
    return len(set(kinds)) == 1


def previous_results(folder: Path) -> LeaderboardResults:
    """The results in a folder, or in a results.json.

    Raises:
        InvalidRequestError: There are none, or they cannot be read.
    """
    file = folder / RESULTS_NAME if folder.is_dir() else folder
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidRequestError(f"{file} cannot be read: name a folder of `--out`") from None
    return results_of(text, str(file))
