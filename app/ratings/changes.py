"""The difference between a board and previous results."""

from pathlib import Path

from app.core.errors import InvalidRequestError
from app.ratings.results import Board, Changes, LeaderboardResults, Rating, RatingChange, ViewName


def changes_of(board: Board, previous: LeaderboardResults, folder: Path) -> Changes:
    """Compares the main view of a board with the same view of previous results.

    The previous board is that of the same judge, or the first one. Without the main view among
    its views, "soft" or another common one is compared.

    Raises:
        InvalidRequestError: The two have no view in common.
    """
    boards = (previous.board, *previous.other_boards)
    before = next((earlier for earlier in boards if earlier.judge == board.judge), previous.board)
    view = _common_view(board, before, folder)
    old = {rating.model: rating for rating in before.views[view].ratings}
    new = {rating.model: rating for rating in board.views[view].ratings}
    models = [*new, *(model for model in old if model not in new)]
    return Changes(
        folder=str(folder),
        view=view,
        signature_before=before.signature,
        same_signature=before.signature == board.signature,
        battles_before=before.battles,
        models=tuple(_change(model, old.get(model), new.get(model)) for model in models),
    )


def _common_view(board: Board, before: Board, folder: Path) -> ViewName:
    names: tuple[ViewName, ...] = (board.main, "soft", "accepted", "people")
    for name in names:
        if name in board.views and name in before.views:
            return name
    raise InvalidRequestError(f"{folder} has no view in common with these results")


def _change(model: str, old: Rating | None, new: Rating | None) -> RatingChange:
    return RatingChange(
        model=model,
        score_before=old.score if old else None,
        score=new.score if new else None,
        rank_before=old.rank if old else None,
        rank=new.rank if new else None,
        moved=old is not None and new is not None and _is_apart(old, new),
    )


def _is_apart(old: Rating, new: Rating) -> bool:
    """Whether one interval ends below the beginning of the other; None means unbounded."""
    return any(
        low.low is not None and high.high is not None and low.low > high.high
        for low, high in ((old, new), (new, old))
    )
