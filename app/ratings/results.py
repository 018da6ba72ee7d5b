"""The results of a leaderboard, as results.json holds them and the page shows them."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

FORMAT = 1

Unbounded = Literal["above", "below", "both"]
ViewName = Literal["accepted", "soft", "abstain_as_tie", "debiased", "always", "people"]
# In the order in which they are shown.
VIEWS: tuple[ViewName, ...] = get_args(ViewName)


@dataclass(frozen=True, kw_only=True)
class Rating:
    """The rating of one model in one view.

    Args:
        model: Name.
        battles: Battles of the model that the view counts.
        score: Rating on the Elo scale; None without such battles.
        low, high: Interval of the score at the level of the settings, for this model alone.
        rank: 1 is the best of its component; None without a score, and for a provisional model.
        rank_low, rank_high: Best and worst rank in the rank set. The rank sets of all models of a
            component hold together.
        component: Models that met, directly or through others, share a component, numbered from 1.
            Scores compare only inside a component.
        unbounded: The side on which the data have no bound: "above" if the model gave up no point
            to the models with finite ratings, "below" if it took none, "both" if it met them only
            through a third, and both were better than it, or both worse. The score is then a
            product of the prior, and its interval has no end on that side. The same holds if it is
            so in more than 1% of the rounds of the bootstrap.
        provisional: Whether the model has fewer judged battles than `min_battles`, or no bound on
            both sides; it has no rank.
        centre_share: How much the model counts in the mean that has the score `centre`; the shares
            of a component sum to 1. None without a score, and in results of versions up to 0.3.0,
            in which all models counted alike.
        raw_score: With `control`, the rating without it; else None.
    """

    model: str
    battles: int
    score: float | None
    low: float | None
    high: float | None
    rank: int | None
    rank_low: int | None
    rank_high: int | None
    component: int | None
    unbounded: Unbounded | None
    provisional: bool = False
    centre_share: float | None = None
    raw_score: float | None = None


@dataclass(frozen=True, kw_only=True)
class FirstPlace:
    """How few battles change the first place, if they are dropped.

    Args:
        model: The first model of the largest component.
        challenger: The model that takes its place.
        dropped: Number of dropped battles; None if none of the tried sets changes the place.
        share: `dropped` by the battles of the view.
        rows: Identifiers of the dropped battles, the most influential first, at most 20.
        least: Whether `dropped` is known to be the least number, rather than an upper bound.
    """

    model: str
    challenger: str | None
    dropped: int | None
    share: float | None
    rows: tuple[str, ...]
    least: bool


@dataclass(frozen=True, kw_only=True)
class StyleEffect:
    """How much one surface feature moves the outcome, with `control`.

    Args:
        feature: "length", "headers", "bold" or "lists".
        effect: Points of the Elo scale for one standard deviation of the feature's normalised
            difference.
        low, high: Its interval.
    """

    feature: str
    effect: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class View:
    """The ratings that one treatment of the judgments leads to.

    Args:
        name: One of VIEWS.
        battles: Battles that the view counts.
        questions: Units of the bootstrap among them.
        components: Number of groups of models that never met each other.
        ratings: Best first, by component; the models without battles last.
        win_rates: For the models in the order of Board.models, the mean outcome of the row's model
            against the column's; None where they did not meet. Debiased ones may leave [0, 1].
        first_place: None if there is no second model to take it.
        style: Empty without `control`.
        judge_weight: In "debiased", how much the judge counts: 0 is people alone, 1 corrects the
            judge on every battle. The mean over the battles; None in another view, and in results
            of versions up to 0.3.0, which had the weight 1.
        unsolved: Share of the rounds of the bootstrap in which the ratings of the established
            models are not all finite; None with `control`, and in results of versions up to 0.3.0.
    """

    name: ViewName
    battles: int
    questions: int
    components: int
    ratings: tuple[Rating, ...]
    win_rates: tuple[tuple[float | None, ...], ...]
    first_place: FirstPlace | None
    style: tuple[StyleEffect, ...] = ()
    judge_weight: float | None = None
    unsolved: float | None = None


@dataclass(frozen=True, kw_only=True)
class Category:
    """The battles of one kind of question, rated by themselves.

    Args:
        name: Name of the kind.
        battles: Number of its battles, with errors.
        labelled: Number of its battles with a person's label.
        view: Their ratings, in the view to trust most.
    """

    name: str
    battles: int
    labelled: int
    view: View


@dataclass(frozen=True, kw_only=True)
class ModelPair:
    """Verdicts and abstentions of one judge on the battles of two models.

    Args:
        model_a, model_b: In alphabetical order.
        battles: All battles of the two, with errors.
        errors: Number of battles without a judgment.
        accepted: Number of battles with an accepted verdict.
        coverage: `accepted` by the judged battles; None if none was judged.
        reasons: Reason of an abstention -> number.
        flips: Judged battles in which the two orders prefer different responses; None if the rows
            have no p_fwd and p_rev.
        first_bias: Mean advantage in probability of the response shown first, in [-0.5, 0.5].
        labelled: Number of battles with a person's label.
    """

    model_a: str
    model_b: str
    battles: int
    errors: int
    accepted: int
    coverage: float | None
    reasons: dict[str, int]
    flips: int | None
    first_bias: float | None
    labelled: int


@dataclass(frozen=True, kw_only=True)
class WinRate:
    """The interval that alpha implies for a model's share of wins, over its judged battles.

    At most a share alpha of the accepted verdicts of the whole board is expected to be wrong, and
    nothing is known of the abstentions. Labels are not used.

    Args:
        model: Name.
        judged: Its judged battles.
        won, lost, abstained: Verdicts; a tie counts half for each of the first two.
        low, high: The interval if all wrong verdicts may be in this model's battles: alpha excludes
            nothing else.
        even_low, even_high: The interval if the wrong verdicts are spread evenly over the models,
            which no guarantee says.
    """

    model: str
    judged: int
    won: float
    lost: float
    abstained: int
    low: float
    high: float
    even_low: float
    even_high: float


@dataclass(frozen=True, kw_only=True)
class Favour:
    """How much the judge favors a model, according to human labels.

    Args:
        model: Name.
        labelled: Number of its battles with a label.
        favour: Mean of p_bar minus the people's outcome, in [-1, 1], beyond what a judge that
            shrinks all gaps alike would give the model.
        low, high: Its interval. The intervals of all models hold together.
        raw: The mean with the shrunken gaps; None in results of versions up to 0.3.0, whose
            `favour` it was, with intervals for single models.
    """

    model: str
    labelled: int
    favour: float
    low: float
    high: float
    raw: float | None = None


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Judge and people, on the labelled battles; each battle weighs 1 / human_probability.

    Args:
        labelled: Number of battles with a label.
        ties: Labels "tie", which count for none of the rates.
        accepted: Labelled battles with an accepted verdict and no tie.
        error: Share of wrong ones among them; None if there are none.
        error_low, error_high: Its interval.
        error_always: Share of wrong ones if the judge always answers.
        favours: For each model with 10 labels, the most favored first.
    """

    labelled: int
    ties: int
    accepted: int
    error: float | None
    error_low: float | None
    error_high: float | None
    error_always: float | None
    favours: tuple[Favour, ...]


@dataclass(frozen=True, kw_only=True)
class Board:
    """The results of one judge.

    Args:
        judge: Name to show; unique among the judges.
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
        win_rates: Empty without alpha.
        agreement: None without labels.
        notes: Sentences in plain words that belong to the table.
        label_noise: Share of wrong labels among those of people, for which "debiased", "people" and
            `agreement` are corrected.
        categories: Kinds of questions, those with the most battles first; empty if the rows have no
            column `category`, or only one.
        more_categories: Number of smaller kinds that were left out.
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
    win_rates: tuple[WinRate, ...]
    agreement: Agreement | None
    notes: tuple[str, ...]
    label_noise: float = 0.0
    categories: tuple[Category, ...] = ()
    more_categories: int = 0


@dataclass(frozen=True, kw_only=True)
class JudgePair:
    """Two judges on the same rows.

    Args:
        judge_a, judge_b: Names, as in Board.judge.
        models: Models with a score of both.
        rank_correlation: Kendall's tau-b of the scores in the view "soft"; None below two models.
        shared: Battles that both judged.
        disagree: Share of the shared battles in which they prefer different models.
        worst: The pairs of models with the largest difference of mean p_bar, at most 10.
    """

    judge_a: str
    judge_b: str
    models: int
    rank_correlation: float | None
    shared: int
    disagree: float | None
    worst: tuple["Disagreement", ...]


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Two judges on one pair of models; `p_bar` is the mean over the battles that both judged."""

    model_a: str
    model_b: str
    battles: int
    p_bar_a: float
    p_bar_b: float


@dataclass(frozen=True, kw_only=True)
class RatingChange:
    """One model in the previous results and in these, in the main view of these.

    Args:
        model: Name.
        score_before: Its earlier score, on the zero of these results: the models with a rank in
            both have the same mean before and now. None where the model was not rated.
        score, rank_before, rank: None where the model was not rated.
        moved: Whether the change is beyond chance: its interval does not contain 0. In results of
            versions up to 0.3.0, whether the two intervals of the scores do not overlap.
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
        folder: Place of the previous results.
        view: The compared view.
        signature_before: Signature of the previous results.
        same_signature: Whether judge, calibration and criterion are the same.
        battles_before: Number of battles in the previous results.
        models: New and lost ones, too; the best first.
        common_questions: Questions, or groups, that are in both; None if the previous results do
            not say.
        note: How the two boards were compared, in plain words.
    """

    folder: str
    view: ViewName
    signature_before: str | None
    same_signature: bool
    battles_before: int
    models: tuple[RatingChange, ...]
    common_questions: int | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class RatingSettings:
    """How the results were computed.

    Args:
        rounds: Rounds of the bootstrap.
        seed: Seed of the bootstrap.
        level: Level of the intervals, e.g. 0.95.
        scale: Points of the Elo scale for ten-fold odds.
        centre: Score of `reference`.
        reference: The model whose score is `centre`; None for the mean of the established models
            of each component, weighted by the information of their battles.
        min_battles: Judged battles that make a model established; others are provisional.
        prior_sd: Standard deviation of the prior of a rating in points; it keeps the rating of a
            model that won all its battles finite.
        control: "length", or None.
    """

    rounds: int = 1000
    seed: int = 0
    level: float = 0.95
    scale: float = 400.0
    centre: float = 1000.0
    reference: str | None = None
    prior_sd: float = 1000.0
    control: Literal["length"] | None = None
    min_battles: int = 30

    @property
    def points(self) -> float:
        """Points of the Elo scale for one logit."""
        return self.scale / math.log(10.0)


@dataclass(frozen=True, kw_only=True)
class LeaderboardResults:
    """The whole result of a leaderboard.

    Args:
        version: Version of scope-judge.
        made: Time of the run, ISO 8601 with a zone.
        settings: Settings of the computation.
        board: Results of the judge with the most judged battles.
        other_boards: Results of the other judges.
        judges: Every two judges side by side.
        changes: None without previous results.
    """

    version: str
    made: str
    settings: RatingSettings
    board: Board
    other_boards: tuple[Board, ...] = ()
    judges: tuple[JudgePair, ...] = ()
    changes: Changes | None = None
    format: int = field(default=FORMAT)
