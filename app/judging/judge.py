"""The judge: has comparisons scored in one call, then decides with calibrated thresholds."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from app.audits.monitor import Monitor
from app.core.calibration import Calibration
from app.core.comparison import Case, Comparison, Criterion
from app.core.errors import RequestError, ScopeJudgeError, StoreCorruptError, StoreUnavailableError
from app.core.fingerprint import JudgeIdentity
from app.core.preference import NoScore, Preference, Score, preference_from_gaps
from app.flow import CURRENT_FLOW, off_loop
from app.judges.cascade import CascadeScorer
from app.judges.scorer import ScoreOutcome, Scorer
from app.observability.telemetry import Telemetry
from app.sets.cache import Calibrations
from scope_judge.records import CalibrationReference, Judgment, Reason, Rung, Verdict

# Largest batch that is decided on the event loop. Handing over to a thread costs as much as a few
# dozen decisions.
_MOST_DECIDED_ON_LOOP = 64

# Numbers of a preference that a judgment shows.
_NUMBERS = ("p_fwd", "p_rev", "p_bar", "uncertainty", "confidence")
# A comparison, and the criterion to decide it by.
Asked = tuple[Comparison, Criterion]
# A case with its judgment, or its error.
Outcome = Case | ScopeJudgeError


class Observer(Protocol):
    """Notes judgments before they are answered."""

    async def observe(self, judged: Sequence[Case]) -> None:
        """Notes the judgments of one batch; may name an audit in a judgment."""


class Judge:
    """Decides comparisons by their scores and by calibrated thresholds."""

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

    async def judge(self, asked: Asked, *, by: str = "service") -> Case:
        """Judges one comparison, or raises the error of it."""
        (outcome,) = await self.judge_batch([asked], by=by)
        if isinstance(outcome, ScopeJudgeError):
            raise outcome
        return outcome

    async def judge_batch(
        self, asked: Sequence[Asked | RequestError], *, by: str = "service"
    ) -> list[Outcome]:
        """Judges comparisons in one call of the scorer.

        Args:
            asked: The comparisons; one that cannot be judged as written is its own error.

        Returns:
            For each of them, in order, the case with its judgment, or its own error.

        Raises:
            UnavailableError: The scorer is unavailable, or no comparison has a calibration because
                the store is unavailable. If only some lack one, each of those gets its error.
        """
        batch = [one if isinstance(one, RequestError) else Case(*one, by=by) for one in asked]
        cases = [one for one in batch if isinstance(one, Case)]
        # Thresholds come first, so that a comparison without one costs the scorer nothing.
        await self._find_thresholds(cases)
        await self._score(cases)
        await self._decide(cases)
        judged = [case for case in cases if isinstance(case.outcome, Judgment)]
        for observer in self._observers:
            await observer.observe(judged)
        outcomes = [one if isinstance(one, RequestError) else _outcome(one) for one in batch]
        self._count(outcomes)
        return outcomes

    async def _find_thresholds(self, cases: Sequence[Case]) -> None:
        """Finds the version and the threshold of each criterion with an alpha, or its error.

        Without an alpha, a set has no effect.
        """
        by_criterion: dict[Criterion, list[Case]] = {}
        for case in cases:
            if case.criterion.alpha is not None:
                by_criterion.setdefault(case.criterion, []).append(case)
        used: dict[Criterion, Calibration] = {}
        # Each set is asked for once, so that all judgments of a batch by it use one version.
        names = dict.fromkeys(criterion.calibration for criterion in by_criterion)
        versions = {name: await self._version_of(name) for name in names}
        for criterion, same in by_criterion.items():
            found = await _with_threshold(criterion, versions[criterion.calibration])
            if isinstance(found, ScopeJudgeError):
                for case in same:
                    case.outcome = found
                continue
            used[criterion] = found[0]
            for case in same:
                case.calibration, case.age_s, case.threshold = found
        failed = [case.outcome for case in cases if isinstance(case.outcome, StoreUnavailableError)]
        if failed and len(failed) == len(cases):
            raise failed[0]
        for criterion in await self._monitor.suspended(used.items()):
            for case in by_criterion[criterion]:
                case.suspended = True

    async def _version_of(self, name: str) -> tuple[Calibration, float] | ScopeJudgeError:
        """The version of a set to judge by, and the seconds since it was confirmed, or an error.

        An error is caught here, because its frames would keep the cases otherwise.
        """
        try:
            fingerprint = self._scorer.identity.fingerprint
            return await self._calibrations.usable(name, fingerprint=fingerprint)
        except (RequestError, StoreCorruptError, StoreUnavailableError) as exc:
            return exc

    async def _score(self, cases: Sequence[Case]) -> None:
        """Scores all comparisons in one call."""
        waiting = [case for case in cases if case.outcome is None]
        comparisons = [case.comparison for case in waiting]
        scores: Sequence[ScoreOutcome]
        if isinstance(self._scorer, CascadeScorer):
            least = self._calibrations.min_label_mass
            decides = partial(_small_decides, waiting, min_label_mass=least)
            scores = await self._scorer.score_in_turn(comparisons, decides)
        else:
            scores = await self._scorer.score(comparisons)
        for case, score in zip(waiting, scores, strict=True):
            if isinstance(score, Score | NoScore):
                case.score = score
            else:
                case.outcome = score

    async def _decide(self, cases: Sequence[Case]) -> None:
        """Makes and counts the judgments, in a thread if there are many."""
        begun = time.perf_counter()
        if len(cases) <= _MOST_DECIDED_ON_LOOP:
            self._make_judgments(cases)
        else:
            await off_loop(self._make_judgments, cases)
        self._telemetry.stage_seconds.labels("decide").observe(time.perf_counter() - begun)
        self._telemetry.stale_judgments.inc(sum(case.age_s > 0 for case in cases))

    def _make_judgments(self, cases: Sequence[Case]) -> None:
        scored = [(case, case.score) for case in cases if isinstance(case.score, Score)]
        # The gaps are divided as those of the set's examples are.
        preferences = _preferences(
            (score for _, score in scored), (_temperature(case) for case, _ in scored)
        )
        for (case, _), preference in zip(scored, preferences, strict=True):
            case.preference = preference
        judged = [case for case in cases if case.score is not None]
        least, identity = self._calibrations.min_label_mass, self._scorer.identity
        for case in judged:
            case.outcome = decide(case, min_label_mass=least, judge=identity)
        if isinstance(self._scorer, CascadeScorer):
            _add_rungs(judged, self._scorer.names)
        for case in judged:
            self._telemetry.count_judgment(case)

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        """Counts the errors, and all outcomes for the key that asked."""
        uses = Counter[str]()
        for outcome in outcomes:
            if isinstance(outcome, ScopeJudgeError):
                self._telemetry.judgment_errors.labels(outcome.code).inc()
                uses["errors"] += 1
            else:
                abstains = outcome.judgment.verdict == "abstain"
                uses["abstentions" if abstains else "verdicts"] += 1
        self._telemetry.count_use(CURRENT_FLOW.get().key, **uses)


async def _with_threshold(
    criterion: Criterion, version: tuple[Calibration, float] | ScopeJudgeError
) -> tuple[Calibration, float, float] | ScopeJudgeError:
    """Adds the threshold of a criterion to the version of its set; an error stays itself."""
    if isinstance(version, ScopeJudgeError):
        return version
    try:
        return *version, await find_threshold(criterion, version[0])
    except RequestError as exc:
        return exc


async def find_threshold(criterion: Criterion, calibration: Calibration) -> float:
    """Finds the threshold of a criterion with an alpha, in nats; -inf if infeasible.

    Each threshold of "pac" is its own turn in the threads, so that others get theirs in between.
    Whoever gets the turn after another caller with the same criterion finds the threshold kept.
    """
    assert criterion.alpha is not None, "without an alpha there is no threshold"
    key = criterion.alpha, criterion.guarantee, criterion.delta
    # A threshold of "marginal" is only looked up in the calibration's curve.
    if criterion.guarantee == "marginal" or calibration.kept_threshold(*key) is not None:
        return calibration.threshold(*key)
    return await off_loop(calibration.threshold, *key)


def decide(case: Case, *, min_label_mass: float, judge: JudgeIdentity) -> Judgment:
    """Accepts the preference of a scored case, or abstains with the first reason that applies."""
    score = case.score if isinstance(case.score, Score) else None
    preference, calibration, threshold = case.preference, case.calibration, _threshold(case)
    verdict: Verdict = "abstain"
    reason: Reason | None = None
    risk_level: float | None = None
    if isinstance(case.score, NoScore):
        reason = case.score.reason
    # Checked first: without mass on the labels the preference means nothing.
    elif score is None or _is_off_task(score, min_label_mass):
        reason = "off_task"
    elif preference is None or preference.side is None:
        reason = "no_preference"
    else:
        # No alpha accepts the judgments above, so they have no risk level.
        risk_level = _risk_level(case, preference)
        if case.suspended:
            reason = "suspended"
        elif threshold == -math.inf:
            reason = "infeasible"
        elif threshold is not None and not preference.accepted(threshold):
            reason = "uncertain"
        else:
            verdict = preference.side
    criterion, orders = case.criterion, score.orders if score else 2
    promised = criterion.alpha is not None
    return Judgment(
        id=None,
        verdict=verdict,
        preferred=None if preference is None else preference.side,
        reason=reason,
        **{name: getattr(preference, name, None) for name in _NUMBERS},
        label_mass=score.label_mass if score else None,
        orders=orders,
        cached=score is not None and score.cached,
        bounded=score is not None and max(map(abs, score.gaps)) >= judge.largest_gap,
        temperature=_temperature(case) if orders == 1 else None,
        threshold=None if threshold == -math.inf else threshold,
        alpha=criterion.alpha,
        # Without an alpha, nothing is promised.
        guarantee=criterion.guarantee if promised else None,
        delta=criterion.delta if promised else None,
        risk_level=risk_level,
        calibration=None
        if calibration is None
        else CalibrationReference(
            name=calibration.name, version=calibration.version, n=calibration.n
        ),
        judge=judge.name,
        audit=None,
    )


def _is_off_task(score: Score, min_label_mass: float) -> bool:
    # Nothing is off task where the judge does not say its label mass.
    return score.label_mass is not None and score.label_mass < min_label_mass


def _risk_level(case: Case, preference: Preference) -> float | None:
    """The smallest alpha that accepts this preference; None if none does.

    None under "pac", too, where the threshold can fall when alpha rises, and without an alpha.
    """
    if case.calibration is None or case.criterion.guarantee != "marginal":
        return None
    level = case.calibration.curve.risk_level(preference.uncertainty)
    return None if level == math.inf else level


def _temperature(case: Case) -> float:
    return 1.0 if case.calibration is None else case.calibration.temperature


def _threshold(case: Case) -> float | None:
    """The threshold of the judge that gave the score; that of a cascade's small one is another."""
    is_small = isinstance(case.score, Score) and case.score.small is None
    first = _first_threshold(case) if is_small else None
    return case.threshold if first is None else first


def _first_threshold(case: Case) -> float | None:
    """Largest uncertainty at which the small judge of a cascade decides; None for a judge alone."""
    criterion, calibration = case.criterion, case.calibration
    if calibration is None or calibration.cascade is None:
        return None
    assert criterion.alpha is not None
    assert criterion.delta is not None
    # Found a moment ago, with the threshold.
    return calibration.chosen(criterion.alpha, criterion.delta).first


def _small_decides(
    cases: Sequence[Case],
    places: Sequence[int],
    scores: Sequence[Score],
    *,
    min_label_mass: float,
) -> list[bool]:
    """Whether the small judge of a cascade decides cases, which are named by their places.

    It also does if nothing is accepted whatever the large judge says. Without an alpha the large
    judge decides everything.
    """
    decided = list[bool]()
    for place, score, preference in zip(places, scores, _preferences(scores), strict=True):
        first = _first_threshold(cases[place])
        is_sure = (
            first is not None
            and preference.accepted(first)
            and not _is_off_task(score, min_label_mass)
        )
        decided.append(is_sure or cases[place].threshold == -math.inf)
    return decided


def _preferences(scores: Iterable[Score], temperatures: Iterable[float] = ()) -> list[Preference]:
    """The preferences by scores, whose gaps are divided by a temperature each if there are some."""
    gaps = np.array([score.gaps for score in scores]).reshape(-1, 2)
    if divisors := list(temperatures):
        gaps /= np.array(divisors).reshape(-1, 1)
    return preference_from_gaps(gaps[:, 0], gaps[:, 1]).rows()


def _add_rungs(cases: Iterable[Case], names: tuple[str, str]) -> None:
    """Adds the judges that were asked to the judgments of a cascade."""
    for case in cases:
        judgment, small = case.judgment, case.score.small if case.score else None
        case.first = case.preference
        if small is not None:
            case.first = _preferences([small])[0] if isinstance(small, Score) else None
        rungs = [_rung(names[0], case.first, _first_threshold(case))]
        decided = judgment.reason != "escalation_unavailable"
        if small is not None and decided:
            rungs.append(_rung(names[1], case.preference, case.threshold))
        case.outcome = replace(
            judgment, rungs=tuple(rungs), decided_by=rungs[-1].judge if decided else None
        )


def _rung(judge: str, preference: Preference | None, threshold: float | None) -> Rung:
    """One judge of a cascade; a threshold of -inf decides nothing."""
    return Rung(
        judge=judge,
        p_bar=None if preference is None else preference.p_bar,
        uncertainty=None if preference is None else preference.uncertainty,
        threshold=None if threshold == -math.inf else threshold,
    )


def _outcome(case: Case) -> Outcome:
    return case.outcome if isinstance(case.outcome, ScopeJudgeError) else case
