"""Sentences that belong to a leaderboard: where its numbers do not say what they seem to say."""

from collections.abc import Iterator, Mapping, Sequence

from app.ratings.results import Board, RatingSettings, Unbounded, View

NO_PROMISE = (
    "Ratings come without a guarantee. Alpha limits the share of wrong verdicts among all "
    "accepted verdicts of the board, but not among those of one model: a judge that favors a "
    "model can misplace it by hundreds of points."
)
# Below this number of resampled units the percentiles of the bootstrap are too narrow.
FEW_UNITS = 30
_FEW_LABELS = 100
_NAMED = 5
_UNBOUNDED: Mapping[Unbounded, str] = {
    "above": "above, because the other models won no point against them, in battles or corrected "
    "outcomes",
    "below": "below, because they won no point against the other models, in battles or corrected "
    "outcomes",
    "both": "on either side, because they are linked to the other models only through a third one "
    "that lost to both, or won against both",
}


def notes_of(board: Board, settings: RatingSettings) -> tuple[str, ...]:
    """The notes of a board, the most important first.

    Args:
        board: The board; its own notes are not read.
        settings: Settings of the computation.
    """
    return (
        *_about_alpha(board),
        *_about_fallback(board),
        *_about_trust(board, settings),
        *_about_view(board.views[board.main], settings),
        *_about_rows(board),
    )


def several_signatures(signatures: Sequence[str | None]) -> str | None:
    """Says in what the signatures of one judge differ; None unless the first has such another.

    Args:
        signatures: Signature of each board, in the order in which they are shown.
    """
    first, *others = (set((signature or "").split("; ")) for signature in signatures)
    judge = {part for part in first if part.startswith("judge ")}
    same = [other for other in others if judge and judge <= other]
    if not same:
        return None
    shown, hidden = sorted(first - same[0]), sorted(same[0] - first)
    return (
        f"The rows of this judge have {1 + len(same)} signatures, so they make {1 + len(same)} "
        f"boards. Only this board has: {'; '.join(shown) or 'nothing'}. Only the next one has: "
        f"{'; '.join(hidden) or 'nothing'}. To make them one board, judge all battles "
        f"again with one version of the set. Nothing is scored twice with SCOPE_SCORE_CACHE."
    )


def _about_alpha(board: Board) -> Iterator[str]:
    agreement = board.agreement
    if agreement is None or board.alpha is None or agreement.error_low is None:
        return
    if agreement.error_low > board.alpha:
        yield (
            f"The labels contradict alpha: {agreement.error:.1%} of the accepted verdicts are "
            f"wrong ({agreement.error_low:.1%} to {agreement.error_high:.1%}), and alpha is "
            f"{board.alpha:.1%}. The calibration set differs from these battles, or its threshold "
            f"missed alpha by chance. Calibrate with labelled battles of these models, then judge "
            f"them again."
        )


def _about_fallback(board: Board) -> Iterator[str]:
    debiased = board.views.get("debiased")
    if debiased is None or board.main == "debiased" or board.agreement is None:
        return
    yield (
        f"{board.agreement.labelled} labels are not enough for the view `debiased`. They cover "
        f"fewer than {FEW_UNITS} questions, or its equations have no finite solution in most "
        f"rounds of "
        f"the bootstrap ({debiased.unsolved or 0.0:.0%}). So the table shows the view "
        f"`{board.main}`, which the judge can bias toward a model. Label more "
        f"battles, drawn at random."
    )


def _about_trust(board: Board, settings: RatingSettings) -> Iterator[str]:
    yield NO_PROMISE
    agreement = board.agreement
    if agreement is None:
        yield (
            "There are no human labels. If people label a random sample of the battles, the view "
            "`debiased` corrects the bias of the judge."
        )
    elif board.main == "debiased":
        few = ", so few that its intervals may be too narrow"
        yield (
            f"The view `debiased` uses {agreement.labelled} human labels"
            f"{few if agreement.labelled < _FEW_LABELS else ''}. It is unbiased if the labelled "
            f"battles were drawn with the probabilities in the rows."
        )
        weight = board.views["debiased"].judge_weight
        if weight is not None:
            yield (
                f"In it, the judge has a weight of {weight:.2f}: 0 would use the labels alone, "
                f"and 1 the judge's outcome of every battle, corrected by the labels."
            )
    for words, models in _favoured(board):
        yield (
            f"The judge {words} {_listed(models)} by more than its shrunken gaps explain. The "
            f"labels show it in one test for all models, which errs in {1.0 - settings.level:.0%} "
            f"of the boards."
        )
    if board.label_noise:
        yield (
            f"{board.label_noise:.1%} of the labels are assumed to be wrong. The views `debiased` "
            f"and `people` are corrected for that."
        )
    if "accepted" in board.views and board.accepted < board.judged:
        yield (
            "The judge abstains more often on close battles, so the view `accepted` leaves out "
            "many of them. It can overstate differences, and wrong verdicts shrink them."
        )


def _favoured(board: Board) -> Iterator[tuple[str, list[str]]]:
    """Yields what the judge does, and to which models; nothing where the labels show nothing."""
    favours = board.agreement.favours if board.agreement else ()
    for words, models in (
        ("favors", [each.model for each in favours if each.low > 0]),
        ("disfavors", [each.model for each in favours if each.high < 0]),
    ):
        if models:
            yield words, models


def _about_view(view: View, settings: RatingSettings) -> Iterator[str]:
    if view.components > 1:
        yield (
            f"The models form {view.components} groups that never met each other. Compare scores "
            f"and ranks only within a group."
        )
    for side, reason in _UNBOUNDED.items():
        models = [rating.model for rating in view.ratings if rating.unbounded == side]
        if models:
            yield (
                f"{_listed(models)}: nothing bounds the score {reason}, or so few that more than "
                f"1% of the bootstrap's rounds have no finite rating. The "
                f"score comes from a prior of {settings.prior_sd:g} points."
            )
    few = [rating.model for rating in view.ratings if rating.provisional]
    if few:
        verb = "is" if len(few) == 1 else "are"
        yield (
            f"{_listed(few)} {verb} provisional, without a rank: fewer than "
            f"{settings.min_battles} judged battles, or no bound on the score."
        )
    missing = [rating.model for rating in view.ratings if rating.score is None]
    if missing:
        yield f"{_listed(missing)}: no battle in the view `{view.name}`, so there is no rating."
    if view.questions < FEW_UNITS:
        yield (
            f"The intervals come from only {view.questions} questions. With fewer than "
            f"{FEW_UNITS}, they are too narrow."
        )


def _about_rows(board: Board) -> Iterator[str]:
    if board.errors:
        yield f"{board.errors} battles have no judgment, so no view counts them."
    if board.repeated:
        yield f"{board.repeated} rows are copies of other rows. Each battle counts once."
    if board.alpha is None and "accepted" in board.views:
        yield (
            "The rows have no alpha, or several, so the errors among all verdicts have no known "
            "limit."
        )


def _listed(models: list[str]) -> str:
    more = len(models) - _NAMED
    return ", ".join(models[:_NAMED]) + (f" and {more} more" if more > 0 else "")
