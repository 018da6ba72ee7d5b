"""Sentences that belong to a leaderboard: where its numbers do not say what they seem to say."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from scipy.stats import binomtest

from app.ratings.battles import PEOPLE
from app.ratings.results import PRIOR_POINTS, Board, RatingSettings, Unbounded, View

NO_PROMISE = (
    "Ratings come without a guarantee. Alpha concerns the share of wrong verdicts among all "
    "accepted verdicts of the board, and not among those of one model: a judge that favors a "
    "model can misplace it by hundreds of points."
)
# Below this number of resampled units the percentiles of the bootstrap are too narrow.
FEW_UNITS = 30
_FEW_LABELS = 100
_NAMED = 5
# Probability that even failures are called uneven for any model.
_FALSE_ALARM = 0.01
_UNBOUNDED: Mapping[Unbounded, str] = {
    "above": "above, because the other models won no point against them, in battles or corrected "
    "outcomes",
    "below": "below, because they won no point against the other models, in battles or corrected "
    "outcomes",
    "both": "on either side, because they are linked to the other models only through a third one "
    "that lost to both, or won against both",
}


def notes_of(board: Board, settings: RatingSettings) -> tuple[str, ...]:
    """The notes of a board, the most important first; its own notes are not read."""
    return (
        *_about_alpha(board),
        *_about_failures(board),
        *_about_fallback(board),
        *_about_trust(board),
        *_about_view(board.views[board.main], settings),
        *_about_rows(board),
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
            f"missed alpha by chance. Calibrate with labeled battles of these models, then judge "
            f"them again."
        )


def _about_failures(board: Board) -> Iterator[str]:
    if not board.errors:
        return
    ratings = [each for each in board.views[board.main].ratings if each.failed]
    ratings.sort(key=lambda each: -each.failed)
    shown = ", ".join(f"{each.model} {each.failed}" for each in ratings[:_NAMED])
    more = f" and {len(ratings) - _NAMED} more models" if len(ratings) > _NAMED else ""
    by_model = f" By model: {shown}{more}." if ratings else ""
    several = "battles have" if board.errors > 1 else "battle has"
    yield (
        f"{board.errors:,} {several} no judgment, and an error is never a verdict.{by_model} "
        f"Labels of such battles count in `debiased` and `people`."
    )
    uneven = list(uneven_failures(board))
    if uneven:
        yield (
            f"Failures are uneven: battles of {_listed(uneven)} fail more often than chance "
            f"explains. If they fail where the model loses, for example by long answers, views "
            f"without labels rate it too high. Judge the failed battles again, or let people label "
            f"a random sample of all battles."
        )


def uneven_failures(board: Board) -> Iterator[str]:
    """The models in whose battles failures are more frequent than chance explains.

    If failures hit all battles alike, the failures among a model's battles are binomial, with the
    model's share of all battles. The test is one-sided, at 1% for all models together.
    """
    failed, played = Counter[str](), Counter[str]()
    for pair in board.pairs:
        for model in (pair.model_a, pair.model_b):
            failed[model] += pair.errors
            played[model] += pair.battles
    # Each battle is one of two models.
    failures, battles = failed.total() // 2, played.total() // 2
    for model, count in failed.items():
        share = played[model] / battles
        if count and binomtest(count, failures, share, alternative="greater").pvalue < (
            _FALSE_ALARM / len(board.models)
        ):
            yield model


def _about_fallback(board: Board) -> Iterator[str]:
    if board.judge == PEOPLE:
        return
    if not board.accepted:
        yield "No verdict was accepted, so no view ranks by verdicts."
    if "soft" not in board.views:
        yield (
            f"The rows have no p_bar, so the table shows the view `{board.main}`: `soft` and "
            f"`debiased` need the judge's probabilities."
        )
        return
    debiased = board.views.get("debiased")
    if debiased is None or board.main == "debiased" or board.agreement is None:
        return
    questions = board.views["people"].questions
    reason = (
        f"They cover {questions} questions, and {FEW_UNITS} are needed"
        if questions < FEW_UNITS
        else f"Its equations have no finite solution in {debiased.unsolved:.0%} of the rounds of "
        f"the bootstrap"
    )
    yield (
        f"{board.agreement.labelled} labels are not enough for the view `debiased`. {reason}. So "
        f"the table shows the view `{board.main}`, which the judge can bias toward a model. Label "
        f"more battles, drawn at random."
    )


def _about_trust(board: Board) -> Iterator[str]:
    if board.judge == PEOPLE:
        yield "People decided all battles, and no judge was asked."
        return
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
            f"{few if agreement.labelled < _FEW_LABELS else ''}. It is unbiased if the labeled "
            f"battles were drawn with the probabilities in the rows."
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


def _about_view(view: View, settings: RatingSettings) -> Iterator[str]:
    for side, reason in _UNBOUNDED.items():
        models = [each.model for each in view.ratings if each.unbounded == side]
        if models:
            yield (
                f"{_listed(models)}: nothing bounds the score {reason}, or so few that more than "
                f"1% of the bootstrap's rounds have no finite rating. The "
                f"score comes from a prior of {PRIOR_POINTS:g} points."
            )
    few = [each.model for each in view.ratings if each.provisional]
    if few:
        verb = "is" if len(few) == 1 else "are"
        yield (
            f"{_listed(few)} {verb} provisional, without a rating: fewer than "
            f"{settings.min_battles} judged battles, or no bound on the score. Their battles "
            f"change no other rating."
        )
    missing = [each.model for each in view.ratings if each.score is None and not each.provisional]
    if missing:
        yield (
            f"{_listed(missing)}: no battle in the view `{view.name}` links them to the models "
            f"with a rating, not even through others, so they have none. Models that met only each "
            f"other need a board of their own."
        )
    if view.questions < FEW_UNITS:
        yield (
            f"The intervals come from only {view.questions} questions. With fewer than "
            f"{FEW_UNITS}, they are too narrow."
        )


def _about_rows(board: Board) -> Iterator[str]:
    for names in similar_names(board.models):
        quoted = " and ".join(map(repr, names))
        yield f"{quoted} look like one model under several names. Each is rated by itself."
    if board.repeated:
        yield f"{board.repeated} rows are copies of other rows. Each battle counts once."
    if board.alpha is None and "accepted" in board.views:
        yield (
            "The rows have no alpha, or several, so the errors among all verdicts have no known "
            "limit."
        )


def similar_names(models: Sequence[str]) -> list[tuple[str, ...]]:
    """Names that differ only in case, spaces, punctuation, or the order of letters in a word."""
    alike = defaultdict[str, list[str]](list)
    for model in sorted(models):
        plain = re.sub(r"[\W_]+", "", model.casefold()) or model
        alike[re.sub(r"[^\W\d_]+", lambda word: "".join(sorted(word[0])), plain)].append(model)
    return [tuple(names) for names in alike.values() if len(names) > 1]


def _listed(models: list[str]) -> str:
    more = len(models) - _NAMED
    return ", ".join(models[:_NAMED]) + (f" and {more} more" if more > 0 else "")
