"""The difference between a board and previous results.

Both bootstraps draw a question that both boards have in the same rounds, so the difference of two
ratings, round by round, has the spread of a paired comparison.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.core.errors import InvalidRequestError
from app.ratings.board import Leaderboard
from app.ratings.bradley_terry import Floats
from app.ratings.intervals import joint_reach
from app.ratings.results import (
    POINTS,
    Board,
    Changes,
    LeaderboardResults,
    Rating,
    RatingChange,
    ViewName,
)


def changes_of(now: Leaderboard, before: Leaderboard, folder: Path) -> Changes:
    """Compares the main view of a board with the same view of an earlier one, which is in a folder.

    Without the main view among the earlier views, "soft" or another common one is compared.

    Raises:
        InvalidRequestError: The two have no view in common.
    """
    board, earlier = now.results.board, before.results.board
    view = _common_view(board, earlier, folder)
    old = {rating.model: rating for rating in earlier.views[view].ratings}
    new = {rating.model: rating for rating in board.views[view].ratings}
    changes, shift = dict[str, RatingChange](), 0.0
    models = _comparable(old, new)
    if models:
        shares = _shares([new[model] for model in models])
        gaps = np.array([_score(new[model]) - _score(old[model]) for model in models])
        shift = float(shares @ gaps)
        reach = _reach(models, shares, view, before, now)
        for model, gap, width in zip(models, gaps - shift, reach, strict=True):
            changes[model] = _change(old[model], new[model], shift, float(gap), float(width))
    rows = [
        changes.get(model) or _change(old.get(model), new.get(model), shift)
        for model in (*new, *(model for model in old if model not in new))
    ]
    common = len(np.intersect1d(before.rounds.keys, now.rounds.keys))
    return Changes(
        folder=str(folder),
        view=view,
        signature_before=earlier.signature,
        same_signature=earlier.signature == board.signature,
        battles_before=earlier.battles,
        models=tuple(rows),
        common_questions=common,
        note=_note(common, before.results, now.results),
    )


def _common_view(board: Board, before: Board, folder: Path) -> ViewName:
    names: tuple[ViewName, ...] = (board.main, "soft", "accepted", "people")
    for name in names:
        if name in board.views and name in before.views:
            return name
    raise InvalidRequestError(f"{folder} has no view in common with these results")


def _comparable(old: dict[str, Rating], new: dict[str, Rating]) -> list[str]:
    """The models with a rank and a bound in both boards."""
    both = ((model, old.get(model), rating) for model, rating in new.items())
    return [
        model
        for model, *ratings in both
        if all(each and each.rank and not each.unbounded for each in ratings)
    ]


def _shares(ratings: Sequence[Rating]) -> Floats:
    """How much each model counts in the common zero: as in the zero of this board."""
    shares = np.array([each.center_share or 0.0 for each in ratings])
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
    before: Leaderboard,
    now: Leaderboard,
) -> Floats:
    """Shape (models,). Half widths of the intervals of the changes, which hold together."""
    drawn = [
        each.rounds.theta[view][:, [each.results.board.models.index(model) for model in models]]
        for each in (before, now)
    ]
    length = min(map(len, drawn))
    gap = drawn[1][:length] - drawn[0][:length]
    return np.asarray(POINTS * joint_reach(gap - (gap @ shares)[:, None]))


def _change(
    old: Rating | None,
    new: Rating | None,
    shift: float,
    gap: float | None = None,
    reach: float = 0.0,
) -> RatingChange:
    known = new or old
    assert known is not None, "the model is on one of the boards"
    return RatingChange(
        model=known.model,
        score_before=old.score + shift if old and old.score is not None else None,
        score=new.score if new else None,
        rank_before=old.rank if old else None,
        rank=new.rank if new else None,
        moved=gap is not None and abs(gap) > reach,
        change=gap,
        low=None if gap is None else gap - reach,
        high=None if gap is None else gap + reach,
    )


def _note(common: int, before: LeaderboardResults, now: LeaderboardResults) -> str:
    """How the two boards were compared, in plain words."""
    if not common:
        return "The boards share no question, so they count as independent."
    if before.settings.seed != now.settings.seed:
        return (
            f"The boards have different seeds, so they count as independent: --seed "
            f"{before.settings.seed} compares the {common:,} questions that are in both in pairs."
        )
    return (
        f"{common:,} questions are in both boards, of {before.board.questions:,} and "
        f"{now.board.questions:,}. The same resamples of them serve both."
    )
