"""The difference between a board and previous results.

Both bootstraps draw a question that both boards have in the same rounds, so the difference of two
ratings, round by round, has the spread of a paired comparison.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from app.core.errors import InvalidRequestError
from app.ratings.bradley_terry import Floats
from app.ratings.intervals import joint_reach
from app.ratings.results import (
    Board,
    Changes,
    LeaderboardResults,
    Rating,
    RatingChange,
    RatingSettings,
    ViewName,
)
from app.ratings.rounds import RatedBoard, Rounds

# A component before and a component now: the scores of the models in both compare.
_Place = tuple[int | None, int | None]


class _Before(NamedTuple):
    """The earlier board, and its bootstrap if it is known."""

    board: Board
    rounds: Rounds | None


def changes_of(
    now: RatedBoard,
    settings: RatingSettings,
    previous: LeaderboardResults,
    rounds_before: Sequence[Rounds],
    folder: Path,
) -> Changes:
    """Compares the main view of a board with the same view of previous results.

    The previous board is that of the same judge, or the first one. Without the main view among
    its views, "soft" or another common one is compared.

    Args:
        now: The board.
        settings: Its settings.
        previous: The previous results.
        rounds_before: The bootstraps of their boards; empty if they keep none.
        folder: Their place.

    Raises:
        InvalidRequestError: The two have no view in common.
    """
    board = now.board
    boards = (previous.board, *previous.other_boards)
    number = next((n for n, each in enumerate(boards) if each.judge == board.judge), 0)
    before = _Before(boards[number], rounds_before[number] if rounds_before else None)
    view = _common_view(board, before.board, folder)
    old = {rating.model: rating for rating in before.board.views[view].ratings}
    new = {rating.model: rating for rating in board.views[view].ratings}
    changes, shifts = dict[str, RatingChange](), dict[_Place, float]()
    for place, models in _comparable(old, new).items():
        shares = _shares([new[model] for model in models])
        gaps = np.array([_score(new[model]) - _score(old[model]) for model in models])
        shifts[place] = float(shares @ gaps)
        reach = _reach(models, shares, view, settings, before, now)
        for model, gap, width in zip(models, gaps - shifts[place], reach, strict=True):
            changes[model] = _change(old[model], new[model], float(gap), float(width))
    rows = [
        changes.get(model) or _change(old.get(model), new.get(model))
        for model in (*new, *(model for model in old if model not in new))
    ]
    common = _common_questions(before, now)
    return Changes(
        folder=str(folder),
        view=view,
        signature_before=before.board.signature,
        same_signature=before.board.signature == board.signature,
        battles_before=before.board.battles,
        models=tuple(_on_this_zero(row, old.get(row.model), shifts) for row in rows),
        common_questions=common,
        note=_note(folder, common, before.board, previous.settings, now.board, settings),
    )


def _common_view(board: Board, before: Board, folder: Path) -> ViewName:
    names: tuple[ViewName, ...] = (board.main, "soft", "accepted", "people")
    for name in names:
        if name in board.views and name in before.views:
            return name
    raise InvalidRequestError(f"{folder} has no view in common with these results")


def _comparable(old: dict[str, Rating], new: dict[str, Rating]) -> dict[_Place, list[str]]:
    """The models with a rank and a bound in both boards, by their components."""
    by_place = defaultdict[_Place, list[str]](list)
    for model, rating in new.items():
        both = (old.get(model), rating)
        if all(each and each.rank and not each.unbounded for each in both):
            by_place[old[model].component, rating.component].append(model)
    return by_place


def _shares(ratings: Sequence[Rating]) -> Floats:
    """How much each model counts in the common zero: as in the zero of this board."""
    shares = np.array([each.centre_share or 0.0 for each in ratings])
    if not shares.any():
        shares = np.ones(len(ratings))
    return np.asarray(shares / shares.sum())


def _score(rating: Rating) -> float:
    assert rating.score is not None, "a model with a rank has a score"
    return rating.score


def _reach(
    models: Sequence[str],
    shares: Floats,
    view: ViewName,
    settings: RatingSettings,
    before: _Before,
    now: RatedBoard,
) -> Floats:
    """Shape (models,). Half widths of the intervals of the changes, which hold together."""
    if before.rounds is None:
        return _unpaired_reach(models, view, settings, before.board, now.board)
    drawn = [
        rounds.theta[view][:, [board.models.index(model) for model in models]]
        for board, rounds in ((before.board, before.rounds), (now.board, now.rounds))
    ]
    length = min(map(len, drawn))
    gap = drawn[1][:length] - drawn[0][:length]
    reach = joint_reach(gap - (gap @ shares)[:, None], settings.level)
    return np.asarray(settings.points * reach)


def _unpaired_reach(
    models: Sequence[str], view: ViewName, settings: RatingSettings, before: Board, now: Board
) -> Floats:
    """The same from the intervals alone, if the boards are independent."""
    of_models = [
        {each.model: each for each in board.views[view].ratings} for board in (before, now)
    ]
    widths = np.array([[_half_width(ratings[model]) for model in models] for ratings in of_models])
    joint = ndtri(0.5 + settings.level ** (1.0 / len(models)) / 2.0)
    alone = ndtri(0.5 + settings.level / 2.0)
    return np.asarray(np.hypot(*widths) * joint / alone)


def _half_width(rating: Rating) -> float:
    assert rating.low is not None, "the rating has a bound"
    assert rating.high is not None, "the rating has a bound"
    return (rating.high - rating.low) / 2.0


def _change(
    old: Rating | None, new: Rating | None, gap: float | None = None, reach: float = 0.0
) -> RatingChange:
    known = new or old
    assert known is not None, "the model is on one of the boards"
    return RatingChange(
        model=known.model,
        score_before=old.score if old else None,
        score=new.score if new else None,
        rank_before=old.rank if old else None,
        rank=new.rank if new else None,
        moved=gap is not None and abs(gap) > reach,
        change=gap,
        low=None if gap is None else gap - reach,
        high=None if gap is None else gap + reach,
    )


def _on_this_zero(
    row: RatingChange, old: Rating | None, shifts: dict[_Place, float]
) -> RatingChange:
    """The change with its earlier score on the zero of this board, where models tell it."""
    if old is None or row.score_before is None:
        return row
    shift = next((by for (before, _), by in shifts.items() if before == old.component), 0.0)
    return replace(row, score_before=row.score_before + shift)


def _common_questions(before: _Before, now: RatedBoard) -> int | None:
    if before.rounds is None:
        return None
    return len(np.intersect1d(before.rounds.keys, now.rounds.keys))


def _note(
    folder: Path,
    common: int | None,
    before: Board,
    settings_before: RatingSettings,
    now: Board,
    settings: RatingSettings,
) -> str:
    """How the two boards were compared, in plain words."""
    if common is None:
        return (
            f"{folder} has no stored bootstrap, because version 0.3.0 or older wrote it. So the "
            f"boards count as independent, and the intervals are too wide if they share "
            f"questions. Run `scope-judge leaderboard` on its rows again."
        )
    if not common:
        return "The boards share no question, so they count as independent."
    if settings_before.seed != settings.seed:
        return (
            f"The boards have different seeds, so they count as independent: --seed "
            f"{settings_before.seed} compares the {common:,} questions that are in both in pairs."
        )
    return (
        f"{common:,} questions are in both boards, of {before.questions:,} and "
        f"{now.questions:,}. The same resamples of them serve both."
    )
