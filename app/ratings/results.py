"""The results of a leaderboard, as results.json holds them and the page shows them."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

FORMAT = 3
# Level of the intervals.
LEVEL = 0.95
# Points of the Elo scale for ten-fold odds and for one logit, and the mean score of the established
# models, weighted by the information of their battles.
SCALE, CENTER = 400.0, 1000.0
POINTS = SCALE / math.log(10.0)
# Standard deviation, in points and in logits, of the prior that keeps each rating finite.
PRIOR_POINTS = 1000.0
PRIOR_SD = PRIOR_POINTS / POINTS

Unbounded = Literal["above", "below", "both"]
ViewName = Literal["accepted", "soft", "abstain_as_tie", "debiased", "people"]
# In the order in which they are shown.
VIEWS: tuple[ViewName, ...] = get_args(ViewName)


@dataclass(frozen=True, kw_only=True)
class Rating:
    """The rating of one model in one view.

    Args:
        battles: Battles of the model that the view counts, with those against provisional models.
        failed: Battles of the model without a judgment; the same in all views.
        score: Rating on the Elo scale; None without such battles, for a provisional model beside
            established ones, and for a model that the most others never met, not even through
            others.
        low, high: Interval of the score at the level of the settings, for this model alone.
        rank: None without a score, and for a provisional model.
        rank_low, rank_high: Best and worst rank in the rank set. The rank sets of all models hold
            together.
        unbounded: The side on which the data have no bound: "above" if the model gave up no point
            to the models with finite ratings, "below" if it took none, "both" if it met them only
            through a third, and both were better than it, or both worse. The score is then a
            product of the prior, and its interval has no end on that side. The same holds if it is
            so in more than 1% of the rounds of the bootstrap.
        provisional: Whether the model has fewer judged battles than `min_battles`, or no bound on
            both sides; it has no rank, and the page shows no score.
        center_share: How much the model counts in the mean that has the score CENTER; the shares
            sum to 1. None without a score.
    """

    model: str
    battles: int
    failed: int
    score: float | None
    low: float | None
    high: float | None
    rank: int | None
    rank_low: int | None
    rank_high: int | None
    unbounded: Unbounded | None
    provisional: bool
    center_share: float | None


@dataclass(frozen=True, kw_only=True)
class View:
    """The ratings that one treatment of the judgments leads to.

    Args:
        battles: Battles that the ratings were fitted to: those that the view counts, without those
            of provisional models and of models that the most others never met.
        questions: Units of the bootstrap among them.
        ratings: Best first; then provisional models, and those without a rating last.
        unsolved: Share of the rounds of the bootstrap in which the ratings of the established
            models are not all finite.
    """

    name: ViewName
    battles: int
    questions: int
    ratings: tuple[Rating, ...]
    unsolved: float


@dataclass(frozen=True, kw_only=True)
class ModelPair:
    """The battles of two models.

    Args:
        model_a, model_b: In alphabetical order.
        errors: Number of battles without a judgment.
        coverage: `accepted` by the judged battles; None if none was judged.
    """

    model_a: str
    model_b: str
    battles: int
    errors: int
    accepted: int
    coverage: float | None
    labelled: int


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Judge and people, on the judged battles with a label; each weighs 1 / human_probability.

    Labels that calibrated the set chose its threshold, so by them `error` is too small.

    Args:
        labelled: Number of battles with a label, judged or not.
        ties: Labels "tie", which count for none of the errors.
        accepted: Labeled battles with an accepted verdict.
        accepted_ties: Those of them whose label is a tie.
        tie_share, tie_low, tie_high: Share of ties among accepted verdicts, and its interval; None
            without any.
        error, error_low, error_high: Share of wrong ones among accepted verdicts whose label is no
            tie, and its interval; None without any.
        error_always: Share of wrong ones if the judge always answers.
    """

    labelled: int
    ties: int
    accepted: int
    accepted_ties: int
    tie_share: float | None
    tie_low: float | None
    tie_high: float | None
    error: float | None
    error_low: float | None
    error_high: float | None
    error_always: float | None


@dataclass(frozen=True, kw_only=True)
class Board:
    """The ratings by one judge.

    Args:
        signature: The line that a paper can cite; None if the rows have none.
        alpha: The rows' alpha; None if they have none or several.
        guarantee: "marginal" or "pac", likewise.
        models: In alphabetical order.
        battles, judged, errors, accepted, repeated: Numbers of rows. `repeated` ones are copies
            of others and count for nothing else.
        questions: Units of the bootstrap: groups where the rows have them, else questions.
        main: The view to trust most: "debiased" if at least 30 questions have labels, and at least
            half of the rounds of the bootstrap finite ratings; else "soft".
        views: By name; "debiased" and "people" only with labels, "accepted" and "abstain_as_tie"
            only with verdicts.
        pairs: Each pair of models that met, in alphabetical order.
        agreement: None without labels.
        notes: Sentences in plain words that belong to the table.
        label_noise: Share of wrong labels among those of people, for which "debiased", "people" and
            `agreement` are corrected.
    """

    judge: str
    signature: str | None
    alpha: float | None
    guarantee: str | None
    models: tuple[str, ...]
    battles: int
    judged: int
    errors: int
    accepted: int
    repeated: int
    questions: int
    main: ViewName
    views: dict[str, View]
    pairs: tuple[ModelPair, ...]
    agreement: Agreement | None
    notes: tuple[str, ...]
    label_noise: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RatingChange:
    """One model in the previous results and in these, in the main view of these.

    Args:
        model: Name.
        score_before: Its earlier score, on the zero of these results: the models with a rank in
            both have the same mean before and now. None where the model was not rated.
        score, rank_before, rank: None where the model was not rated.
        moved: Whether the change is beyond chance: its interval does not contain 0.
        change: `score` less `score_before`; None if the model has no rank in both, or no bound.
        low, high: Its interval. The intervals of all models hold together.
    """

    model: str
    score_before: float | None
    score: float | None
    rank_before: int | None
    rank: int | None
    moved: bool
    change: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The difference to previous results.

    Args:
        same_signature: Whether judge, calibration and criterion are the same.
        models: New and lost ones, too; the best first.
        common_questions: Questions, or groups, that are in both.
        note: How the two boards were compared, in plain words.
    """

    folder: str
    view: ViewName
    signature_before: str | None
    same_signature: bool
    battles_before: int
    models: tuple[RatingChange, ...]
    common_questions: int
    note: str


@dataclass(frozen=True, kw_only=True)
class RatingSettings:
    """How the results were computed.

    Args:
        min_battles: Judged battles that make a model established; others are provisional.
    """

    rounds: int = 1000
    seed: int = 0
    min_battles: int = 30


@dataclass(frozen=True, kw_only=True)
class LeaderboardResults:
    """The whole result of a leaderboard.

    Args:
        made: Time of the run, ISO 8601 with a zone.
        changes: None without previous results.
    """

    version: str
    made: str
    settings: RatingSettings
    board: Board
    changes: Changes | None = None
    format: int = field(default=FORMAT)
