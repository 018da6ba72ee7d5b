"""Sentences that belong to a leaderboard: where its numbers do not say what they seem to say."""

from collections.abc import Iterator, Mapping

from app.ratings.results import Board, RatingSettings, Unbounded, View

NO_PROMISE = (
    "A rating has no promise. Alpha bounds the share of wrong verdicts among the accepted ones of "
    "the whole board. It does not say whose battles the wrong ones are in: a judge that favours a "
    "model can misplace it by hundreds of points."
)
# Below this number of resampled units the percentiles of the bootstrap are too narrow.
_FEW_UNITS = 30
_FEW_LABELS = 100
_NAMED = 5
_UNBOUNDED: Mapping[Unbounded, str] = {
    "above": "gave up no point to the other models, or the corrected outcomes say so: nothing "
    "bounds the score above",
    "below": "took no point from the other models, or the corrected outcomes say so: nothing "
    "bounds the score below",
    "both": "met the other models only through a third that lost to both, or won against both: "
    "nothing bounds the score",
}


def notes_of(board: Board, settings: RatingSettings) -> tuple[str, ...]:
    """The notes of a board, the most important first.

    Args:
        board: The board; its own notes are not read.
        settings: Settings of the computation.
    """
    return (
        *_about_trust(board),
        *_about_view(board.views[board.main], settings),
        *_about_rows(board),
    )


def _about_trust(board: Board) -> Iterator[str]:
    yield NO_PROMISE
    agreement = board.agreement
    if agreement is None:
        yield (
            "There is no human label. With a person's label for a random sample of the battles, "
            "the view `debiased` corrects what the judge favours."
        )
    elif board.main == "debiased":
        few = ": few, so that its intervals may be too narrow"
        yield (
            f"The view `debiased` rests on {agreement.labelled} human labels"
            f"{few if agreement.labelled < _FEW_LABELS else ''}. It is unbiased if the labelled "
            "battles were drawn with the probabilities that the rows name."
        )
        weight = board.views["debiased"].judge_weight
        if weight is not None:
            yield (
                f"The judge has the weight {weight:.2f} in it. With 0 it would be the labels "
                "alone, and with 1 the judge, corrected on every battle."
            )
    if board.label_noise:
        yield (
            f"The labels count as wrong in {board.label_noise:.1%} of the battles, and the views "
            "`debiased` and `people` are corrected for it."
        )
    if "accepted" in board.views and board.accepted < board.judged:
        yield (
            "Close pairs abstain more often, so that the view `accepted` rests on other battles "
            "than the board's. It can overstate differences, and wrong verdicts shrink them."
        )


def _about_view(view: View, settings: RatingSettings) -> Iterator[str]:
    if view.components > 1:
        yield (
            f"The models form {view.components} groups that never met each other. Scores and ranks "
            "compare only inside a group."
        )
    for side, reason in _UNBOUNDED.items():
        models = [rating.model for rating in view.ratings if rating.unbounded == side]
        if models:
            yield (
                f"{_listed(models)} {reason}. The score comes from a prior with a standard "
                f"deviation of {settings.prior_sd:g} points."
            )
    missing = [rating.model for rating in view.ratings if rating.score is None]
    if missing:
        yield f"{_listed(missing)}: no battle in the view `{view.name}`, so there is no rating."
    if view.questions < _FEW_UNITS:
        yield (
            f"The intervals rest on {view.questions} questions. With fewer than {_FEW_UNITS} they "
            "are too narrow."
        )


def _about_rows(board: Board) -> Iterator[str]:
    if board.errors:
        yield f"{board.errors} battles have no judgment and count in no view."
    if board.repeated:
        yield f"{board.repeated} rows are copies of others and count once."
    if board.alpha is None and "accepted" in board.views:
        yield "The rows have no alpha, or several: no bound on the errors of all verdicts is known."


def _listed(models: list[str]) -> str:
    more = len(models) - _NAMED
    return ", ".join(models[:_NAMED]) + (f" and {more} more" if more > 0 else "")
