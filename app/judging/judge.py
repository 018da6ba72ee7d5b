"""The judge: has comparisons scored in one call, then decides with calibrated thresholds."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from app.audits.monitor import Monitor
from app.core.calibration import Calibration
from app.core.comparison import Comparison, Criterion, Judgment, Rung
from app.core.errors import (
    CascadeError,
    LabelsMissingError,
    RequestError,
    ScopeJudgeError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.core.preference import preference_from_gaps
from app.core.score import NoScore, Preference, Score
from app.fair_queue import CURRENT_FLOW
from app.judges.cascade import CascadeScorer
from app.judges.judged import JudgedComparison
from app.judges.scorer import ScoreOutcome, Scorer
from app.judging.decisions import AcceptanceRule, decide, unscored
from app.observability.telemetry import Telemetry
from app.off_loop import off_loop
from app.sets.cache import Calibrations, ConfirmedCalibration

# Largest batch that is decided on the event loop. Handing over to a thread costs as much as a few
# dozen decisions.
_MOST_DECIDED_ON_LOOP = 64

Outcome = Judgment | ScopeJudgeError
# A threshold in nats, or the reason why a set has none yet.
Threshold = float | LabelsMissingError | CascadeError


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeRequest:
    """A comparison, and the alpha, guarantee and calibration set to decide it by."""

    comparison: Comparison
    criterion: Criterion


class Observer(Protocol):
    """Notes judgments before they are answered."""

    async def observe(self, judged: Sequence[JudgedComparison]) -> None:
        """Notes the judgments of one batch; may name an audit in a judgment."""


@dataclass(kw_only=True, slots=True)
class _Item:
    """A request between the phases; done once it has an outcome.

    Args:
        confirmed: The calibration of its criterion; None without an alpha.
        rule: Its criterion with its threshold.
        score: The score of its comparison, or the reason why it has none.
        outcome: Its judgment or its error.
    """

    request: JudgeRequest
    confirmed: ConfirmedCalibration | None = None
    rule: AcceptanceRule | None = None
    score: Score | NoScore | None = None
    outcome: Outcome | None = None


def _open(items: Iterable[_Item]) -> list[_Item]:
    """Returns the items without an outcome."""
    return [item for item in items if item.outcome is None]


class Judge:
    """Decides comparisons by their scores and by calibrated thresholds.

    Args:
        monitor: Says under which criteria judgments abstain because of audits.
        observers: Note the judgments, in this order.
    """

    def __init__(
        self,
        scorer: Scorer,
        calibrations: Calibrations,
        telemetry: Telemetry,
        *,
        monitor: Monitor,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._scorer = scorer
        self._calibrations = calibrations
        self._telemetry = telemetry
        self._monitor = monitor
        self._observers = observers

    async def judge(self, request: JudgeRequest, *, by: str = "service") -> Judgment:
        """Judges one comparison.

        Raises:
            ScopeJudgeError: The comparison could not be judged.
        """
        (outcome,) = await self.judge_batch([request], by=by)
        if isinstance(outcome, ScopeJudgeError):
            raise outcome
        return outcome

    async def judge_batch(
        self, requests: Sequence[JudgeRequest | RequestError], *, by: str = "service"
    ) -> list[Outcome]:
        """Judges comparisons in one call of the scorer.

        Args:
            requests: The requests; one that cannot be judged as written is its own error.

        Returns:
            For each request, in order, its judgment or its own error.

        Raises:
            UnavailableError: The scorer is unavailable, or no request has a calibration because the
                store is unavailable. If only some requests lack one, each of those gets its error.
            JudgmentFailedError: The scorer returned a wrong number of answers; nothing was judged.
        """
        batch = [
            request if isinstance(request, RequestError) else _Item(request=request)
            for request in requests
        ]
        items = [item for item in batch if isinstance(item, _Item)]
        # Calibrations and thresholds come first, so that a comparison without them, or a batch with
        # too many of them, costs the scorer nothing.
        await self._find_calibrations(items)
        await self._find_rules(items)
        await self._score(items)
        await self._decide(items)
        for request in requests:
            if isinstance(request, RequestError):
                self._telemetry.judgment_errors.labels(request.code).inc()
        await self._observe(items, by=by)
        outcomes = [item if isinstance(item, RequestError) else _outcome(item) for item in batch]
        self._count_usage(outcomes)
        return outcomes

    async def _find_calibrations(self, items: Sequence[_Item]) -> None:
        """Finds the calibration of each criterion with an alpha, or its error.

        Without an alpha, the set of a request has no effect.
        """
        calibrations: dict[str, ConfirmedCalibration | ScopeJudgeError] = {}
        for item in items:
            criterion = item.request.criterion
            if criterion.alpha is None:
                continue
            name = criterion.calibration
            if name not in calibrations:
                calibrations[name] = await self._calibration(name)
            calibration = calibrations[name]
            if isinstance(calibration, ScopeJudgeError):
                item.outcome = calibration
            else:
                item.confirmed = calibration
        failed = [item.outcome for item in items if isinstance(item.outcome, StoreUnavailableError)]
        if failed and len(failed) == len(items):
            raise failed[0]

    async def _calibration(self, name: str) -> ConfirmedCalibration | ScopeJudgeError:
        try:
            return await self._calibrations.usable(
                name, fingerprint=self._scorer.identity.fingerprint
            )
        except (RequestError, StoreCorruptError, StoreUnavailableError) as exc:
            return exc

    async def _find_rules(self, items: Sequence[_Item]) -> None:
        """Finds the threshold of each criterion, or the error that its set lacks labels."""
        criteria = {item.request.criterion: item.confirmed for item in _open(items)}
        used = {
            criterion: confirmed.calibration
            for criterion, confirmed in criteria.items()
            if confirmed is not None
        }
        thresholds = {
            criterion: await find_threshold(criterion, version)
            for criterion, version in used.items()
        }
        suspended = await self._monitor.suspended(used.items())
        rules: dict[Criterion, AcceptanceRule | RequestError] = {}
        for criterion, confirmed in criteria.items():
            threshold = thresholds.get(criterion)
            if confirmed is None or threshold is None:
                rules[criterion] = AcceptanceRule(
                    criterion=criterion, min_label_mass=self._calibrations.min_label_mass
                )
            elif isinstance(threshold, RequestError):
                rules[criterion] = threshold
            else:
                rules[criterion] = AcceptanceRule.of(
                    criterion,
                    confirmed.calibration,
                    threshold,
                    age_s=confirmed.age_s,
                    suspended=criterion in suspended,
                )
        for item in _open(items):
            rule = rules[item.request.criterion]
            if isinstance(rule, RequestError):
                item.outcome = rule
            else:
                item.rule = rule

    async def _score(self, items: Sequence[_Item]) -> None:
        """Scores all comparisons in one call."""
        waiting = _open(items)
        comparisons = [item.request.comparison for item in waiting]
        scores: Sequence[ScoreOutcome]
        if isinstance(self._scorer, CascadeScorer):
            scores = await self._scorer.score_in_turn(comparisons, partial(_decides, waiting))
        else:
            scores = await self._scorer.score(comparisons)
        for item, score in zip(waiting, scores, strict=True):
            if isinstance(score, Score | NoScore):
                item.score = score
            else:
                item.outcome = score

    async def _decide(self, items: Sequence[_Item]) -> None:
        """Makes the judgments, in a thread if there are many, and counts all outcomes."""
        begun = time.perf_counter()
        if len(items) <= _MOST_DECIDED_ON_LOOP:
            self._make_judgments(items)
        else:
            await off_loop(self._make_judgments, items)
        self._telemetry.stage_seconds.labels("decide").observe(time.perf_counter() - begun)
        self._telemetry.stale_judgments.inc(
            sum(item.confirmed is not None and item.confirmed.age_s > 0 for item in items)
        )

    def _make_judgments(self, items: Sequence[_Item]) -> None:
        scored = [(item, item.score) for item in items if isinstance(item.score, Score)]
        gaps = np.array([score.gaps for _, score in scored]).reshape(-1, 2)
        # As the set divides the gaps of its examples.
        gaps /= np.array([[_rule(item).temperature] for item, _ in scored]).reshape(-1, 1)
        preferences = preference_from_gaps(gaps[:, 0], gaps[:, 1]).rows()
        identity = self._scorer.identity
        for (item, score), preference in zip(scored, preferences, strict=True):
            item.outcome = decide(
                preference,
                _rule(item).by_small if self._is_small(score) else _rule(item),
                label_mass=score.label_mass,
                judge=identity.name,
                orders=score.orders,
                cached=score.cached,
                bounded=max(map(abs, score.gaps)) >= identity.largest_gap,
            )
        for item in items:
            if isinstance(item.score, NoScore):
                item.outcome = unscored(item.score.reason, _rule(item), judge=identity.name)
        if isinstance(self._scorer, CascadeScorer):
            _add_rungs(items, self._scorer)
        for item in items:
            outcome = _outcome(item)
            if isinstance(outcome, ScopeJudgeError):
                self._telemetry.judgment_errors.labels(outcome.code).inc()
            else:
                self._telemetry.count_judgment(outcome)

    def _is_small(self, score: Score) -> bool:
        return score.small is None and isinstance(self._scorer, CascadeScorer)

    def _count_usage(self, outcomes: Sequence[Outcome]) -> None:
        """Counts the outcomes for the key that asked."""
        usage = self._telemetry.usage[CURRENT_FLOW.get().key]
        for outcome in outcomes:
            if isinstance(outcome, ScopeJudgeError):
                usage.errors += 1
            elif outcome.verdict == "abstain":
                usage.abstentions += 1
            else:
                usage.verdicts += 1

    async def _observe(self, items: Sequence[_Item], *, by: str) -> None:
        """Shows the judgments to the observers, which may name audits in them."""
        judged = [
            (item, _judged(item, by=by)) for item in items if isinstance(item.outcome, Judgment)
        ]
        for observer in self._observers:
            await observer.observe([comparison for _, comparison in judged])
        for item, comparison in judged:
            item.outcome = comparison.judgment


def _rule(item: _Item) -> AcceptanceRule:
    assert item.rule is not None, "each item without an error has a rule before it is scored"
    return item.rule


def _outcome(item: _Item) -> Outcome:
    assert item.outcome is not None, "each item has an outcome after the decision"
    return item.outcome


def _decides(
    items: Sequence[_Item], places: Sequence[int], scores: Sequence[Score]
) -> Sequence[bool]:
    """Whether the small judge of a cascade decides items, which are named by their places."""
    rows = zip(places, scores, _preferences(scores), strict=True)
    return [
        _rule(items[place]).decides_first(preference, score.label_mass)
        for place, score, preference in rows
    ]


def _preferences(scores: Sequence[Score]) -> list[Preference]:
    """The preferences of a cascade's judge, whose gaps are not divided."""
    gaps = np.array([score.gaps for score in scores]).reshape(-1, 2)
    return preference_from_gaps(gaps[:, 0], gaps[:, 1]).rows()


def _add_rungs(items: Iterable[_Item], cascade: CascadeScorer) -> None:
    """Adds the judges that were asked to the judgments of a cascade."""
    judged = [
        (item, item.outcome, item.score)
        for item in items
        if isinstance(item.outcome, Judgment) and item.score is not None
    ]
    small = [score.small for _, _, score in judged if isinstance(score.small, Score)]
    preferences = iter(_preferences(small))
    for item, outcome, score in judged:
        rule, first = _rule(item), outcome.preference
        if score.small is not None:
            first = next(preferences) if isinstance(score.small, Score) else None
        rungs = [Rung.of(cascade.names[0], first, rule.first)]
        if score.small is not None and outcome.reason != "escalation_unavailable":
            rungs.append(Rung.of(cascade.names[1], outcome.preference, rule.threshold))
        item.outcome = replace(outcome, rungs=tuple(rungs))


def _judged(item: _Item, *, by: str) -> JudgedComparison:
    assert isinstance(item.outcome, Judgment)
    assert item.score is not None
    return JudgedComparison(
        comparison=item.request.comparison,
        score=item.score,
        judgment=item.outcome,
        calibration=None if item.confirmed is None else item.confirmed.calibration,
        by=by,
    )


async def find_threshold(criterion: Criterion, calibration: Calibration) -> Threshold:
    """Finds the threshold of a criterion with an alpha, in nats; -inf if infeasible.

    Each threshold of "pac" is its own turn in the threads, so that others get theirs in between.
    Whoever gets the turn after another caller with the same criterion finds the threshold kept.
    """
    assert criterion.alpha is not None, "without an alpha there is no threshold"
    key = criterion.alpha, criterion.guarantee, criterion.delta
    kept = calibration.kept_threshold(*key)
    if kept is not None:
        return kept
    try:
        if criterion.guarantee == "marginal":
            # A look-up in the calibration's curve.
            return calibration.threshold(*key)
        return await off_loop(calibration.threshold, *key)
    except (LabelsMissingError, CascadeError) as exc:
        return exc
