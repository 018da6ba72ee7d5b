"""Judging: both orders in one engine call, then the calibrated decision."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from app.core.comparison import (
    CalibrationReference,
    Comparison,
    Criterion,
    Judgment,
    Reason,
    Verdict,
)
from app.core.errors import (
    JudgmentFailedError,
    RequestError,
    ScopeJudgeError,
    StoreCorruptError,
    StoreUnavailableError,
    UnavailableError,
)
from app.core.preference import preference_from_gaps, preferred_side
from app.core.thresholds import ThresholdCurve
from app.ports import CallTimes, Engine, LabelLogits, Prompt, PromptError
from app.service.calibration.cache import Calibrations, Usable
from app.service.judging.prompts import PromptTemplate
from app.service.judging.thresholds import Thresholds
from app.service.off_loop import off_loop
from app.telemetry import JudgmentFigures, Telemetry

# A hand-over to a thread costs as much as deciding a few dozen.
_DECIDED_AT_ONCE = 64
# Characters; so many are rendered in a few milliseconds. A text takes as long as that many more.
_RENDERED_AT_ONCE = 2**16
_PER_TEXT = 64


@dataclass(frozen=True, slots=True)
class Score:
    """What the engine says of one comparison, in both orders.

    Args:
        gap_fwd: Logit of response_a less that of response_b, response_a shown first.
        gap_rev: The same with response_a shown second.
        label_mass: Smaller of the two orders' probability on the two labels.
    """

    gap_fwd: float
    gap_rev: float
    label_mass: float


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """A comparison and what its verdict must meet."""

    comparison: Comparison
    criterion: Criterion


class Judge:
    """One judge: an engine with a template, known by its fingerprint.

    Args:
        engine: Already started.
        template: Of the prompts.
        calibrations: Where thresholds come from.
        telemetry: Counts outcomes.
        name: The judge's name in answers.
        fingerprint: What its calibrations are valid for.
    """

    def __init__(
        self,
        engine: Engine,
        template: PromptTemplate,
        calibrations: Calibrations,
        telemetry: Telemetry,
        *,
        name: str,
        fingerprint: str,
    ) -> None:
        self._engine = engine
        self._template = template
        self._calibrations = calibrations
        self._thresholds = Thresholds()
        self._telemetry = telemetry
        self.name = name
        self.fingerprint = fingerprint

    def close(self) -> None:
        """Drops the thresholds that are still to be computed."""
        self._thresholds.close()

    async def judge(self, request: JudgeRequest) -> Judgment:
        """Judges one comparison.

        Raises:
            ScopeJudgeError: There is no judgment.
        """
        (outcome,) = await self.judge_batch([request])
        if isinstance(outcome, ScopeJudgeError):
            raise outcome
        return outcome

    async def judge_batch(
        self, requests: Sequence[JudgeRequest]
    ) -> list[Judgment | ScopeJudgeError]:
        """Judges comparisons in one engine call.

        Returns:
            For each request, in order, its judgment or its own error.

        Raises:
            UnavailableError: Nothing was judged.
        """
        # Calibrations first: where one is missing, the engine need not work.
        calibrations = await self._calibrations_of(requests)
        lost = [each for each in calibrations if isinstance(each, StoreUnavailableError)]
        if lost and len(lost) == len(requests):
            raise lost[0]
        # Thresholds, too: where too many are waiting, nothing is half judged.
        thresholds = await self._pac_thresholds(requests, calibrations)
        judged = [
            i for i, found in enumerate(calibrations) if not isinstance(found, ScopeJudgeError)
        ]
        scores = await self.score([requests[i].comparison for i in judged])
        found = dict(zip(judged, scores, strict=True))
        begun = time.perf_counter()
        decide = partial(self._decide_all, requests, calibrations, found, thresholds)
        if len(requests) <= _DECIDED_AT_ONCE:
            outcomes = decide()
        else:
            outcomes = await off_loop(decide)
        self._telemetry.observe_stage("decide", time.perf_counter() - begun)
        self._telemetry.count_stale_judgments(
            sum(isinstance(each, Usable) and each.age_s > 0 for each in calibrations)
        )
        self._calibrations.drift.note(outcomes, calibrations)
        return outcomes

    async def _pac_thresholds(
        self,
        requests: Sequence[JudgeRequest],
        calibrations: Sequence[Usable | ScopeJudgeError | None],
    ) -> Mapping[Criterion, float]:
        """The thresholds of all "pac" criteria; a marginal one is only looked up."""
        asked = {
            request.criterion: usable.calibration
            for request, usable in zip(requests, calibrations, strict=True)
            if request.criterion.guarantee == "pac" and isinstance(usable, Usable)
        }
        return await self._thresholds.find(asked.items()) if asked else {}

    def _count(self, outcome: Judgment | ScopeJudgeError) -> None:
        if isinstance(outcome, ScopeJudgeError):
            self._telemetry.count_judgment_error(outcome.code)
            return
        self._telemetry.count_judgment(
            JudgmentFigures(
                verdict=outcome.verdict,
                reason=outcome.reason,
                uncertainty=outcome.uncertainty,
                p_fwd=outcome.p_fwd,
                p_rev=outcome.p_rev,
                label_mass=outcome.label_mass,
            )
        )
        if outcome.orders_disagree:
            self._telemetry.count_order_disagreement()

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScopeJudgeError]:
        """Scores comparisons, both orders of all of them in one engine call.

        Returns:
            For each comparison, in order, its score or its own error; an error of either order is
            the comparison's.
        """
        if not comparisons:
            return []
        times = CallTimes()
        with times.rendering():
            prompts = await _prompts(self._template, comparisons)
        logits = await self._logits(prompts, times)
        if len(logits) != len(prompts):
            raise JudgmentFailedError(
                f"the engine answered {len(logits)} of {len(prompts)} prompts"
            )
        pairs = zip(logits[::2], logits[1::2], strict=True)
        return [score_of_orders(forward, reverse) for forward, reverse in pairs]

    async def _logits(
        self, prompts: Sequence[Prompt], times: CallTimes
    ) -> list[LabelLogits | PromptError]:
        """Asks the engine, and notes where the time went."""
        self._telemetry.count_engine_prompts(len(prompts))
        rendered_s, begun = times.render_s, time.perf_counter()
        try:
            return await self._engine.label_logits(prompts, times)
        except UnavailableError as exc:
            self._telemetry.count_engine_error(exc.code)
            raise
        finally:
            call_s = time.perf_counter() - begun
            model_s = call_s - (times.render_s - rendered_s) - times.queue_s
            self._telemetry.observe_stage("render", times.render_s)
            self._telemetry.observe_stage("queue", times.queue_s)
            self._telemetry.observe_stage("engine", max(0.0, model_s))

    async def _calibrations_of(
        self, requests: Sequence[JudgeRequest]
    ) -> list[Usable | ScopeJudgeError | None]:
        found: dict[str, Usable | ScopeJudgeError] = {}
        for request in requests:
            name = request.criterion.calibration
            if request.criterion.alpha is not None and name not in found:
                try:
                    found[name] = await self._calibrations.usable(
                        name, fingerprint=self.fingerprint
                    )
                except (RequestError, StoreCorruptError, StoreUnavailableError) as exc:
                    found[name] = exc
        return [
            None if r.criterion.alpha is None else found[r.criterion.calibration] for r in requests
        ]

    def _decide_all(
        self,
        requests: Sequence[JudgeRequest],
        calibrations: Sequence[Usable | ScopeJudgeError | None],
        scores: Mapping[int, Score | ScopeJudgeError],
        thresholds: Mapping[Criterion, float],
    ) -> list[Judgment | ScopeJudgeError]:
        found: dict[int, Judgment | ScopeJudgeError] = {
            i: calibration
            for i, calibration in enumerate(calibrations)
            if isinstance(calibration, ScopeJudgeError)
        }
        found |= {i: score for i, score in scores.items() if isinstance(score, ScopeJudgeError)}
        scored = {i: score for i, score in scores.items() if isinstance(score, Score)}
        gaps = np.array([(s.gap_fwd, s.gap_rev) for s in scored.values()]).reshape(-1, 2)
        preferences = preference_from_gaps(gaps[:, 0], gaps[:, 1])
        columns = (*preferences, preferences.confidence)
        # One look-up for each criterion: in most batches there is one.
        bounds: dict[Criterion, _Bound] = {}
        for (i, score), *numbers in zip(
            scored.items(), *map(np.ndarray.tolist, columns), strict=True
        ):
            criterion, calibration = requests[i].criterion, calibrations[i]
            assert not isinstance(calibration, ScopeJudgeError)
            if criterion not in bounds:
                bounds[criterion] = _Bound.of(criterion, calibration, thresholds)
            found[i] = self._judgment(_Preference(*numbers), score, criterion, bounds[criterion])
        outcomes = [found[i] for i in range(len(requests))]
        for outcome in outcomes:
            self._count(outcome)
        return outcomes

    def _judgment(
        self, preference: "_Preference", score: Score, criterion: Criterion, bound: "_Bound"
    ) -> Judgment:
        preferred, threshold = preferred_side(preference.p_bar), bound.threshold
        verdict: Verdict = "abstain"
        reason: Reason | None = None
        # First of all: a judge that is not answering has no preference either way.
        if score.label_mass < self._calibrations.min_label_mass:
            reason = "off_task"
        elif preferred is None:
            reason = "no_preference"
        elif threshold == -math.inf:
            reason = "infeasible"
        elif threshold is not None and preference.uncertainty > threshold:
            reason = "uncertain"
        else:
            verdict = preferred
        # Such a judgment is accepted at no alpha, so that it has no risk level.
        never = reason in ("off_task", "no_preference")
        level = None if never else bound.risk_level(preference.uncertainty)
        return Judgment(
            verdict=verdict,
            preferred=preferred,
            reason=reason,
            p_fwd=preference.p_fwd,
            p_rev=preference.p_rev,
            p_bar=preference.p_bar,
            uncertainty=preference.uncertainty,
            confidence=preference.confidence,
            threshold=None if threshold == -math.inf else threshold,
            criterion=criterion,
            risk_level=None if level == math.inf else level,
            label_mass=score.label_mass,
            calibration=bound.reference,
            judge=self.name,
        )


class _Preference(NamedTuple):
    """One row of `Preferences`, as plain numbers."""

    p_fwd: float
    p_rev: float
    p_bar: float
    uncertainty: float
    confidence: float


class _Bound(NamedTuple):
    """What a criterion comes to under its calibration; all None without an alpha."""

    threshold: float | None
    curve: ThresholdCurve | None
    reference: CalibrationReference | None

    @classmethod
    def of(
        cls, criterion: Criterion, usable: Usable | None, pac: Mapping[Criterion, float]
    ) -> "_Bound":
        """Looks the threshold up: a marginal one in the calibration's curve, any other in `pac`."""
        if usable is None or criterion.alpha is None:
            return cls(None, None, None)
        calibration, age_s = usable
        if criterion.guarantee == "marginal":
            threshold = calibration.threshold(criterion.alpha, "marginal", None)
            curve = calibration.curve
        else:
            # Without a risk level: such thresholds may fall where alpha rises.
            threshold, curve = pac[criterion], None
        reference = CalibrationReference(
            calibration.name, calibration.version, calibration.n, age_s
        )
        return cls(threshold, curve, reference)

    def risk_level(self, uncertainty: float) -> float | None:
        """The smallest alpha that accepts this uncertainty; None where there is no such thing."""
        return None if self.curve is None else self.curve.risk_level(uncertainty)


async def _prompts(template: PromptTemplate, comparisons: Sequence[Comparison]) -> list[Prompt]:
    """Both orders of each comparison; large texts are rendered off the event loop."""

    def rendered() -> list[Prompt]:
        return [prompt for each in comparisons for prompt in template.both_orders(each)]

    texts = [text for each in comparisons for text in _texts(each)]
    if sum(map(len, texts)) + _PER_TEXT * len(texts) <= _RENDERED_AT_ONCE:
        return rendered()
    return await off_loop(rendered)


def _texts(comparison: Comparison) -> Iterator[str]:
    yield from (turn.content for turn in comparison.question)
    yield from comparison.response_a
    yield from comparison.response_b


def score_of_orders(
    forward: LabelLogits | PromptError, reverse: LabelLogits | PromptError
) -> Score | ScopeJudgeError:
    """The score of a comparison from its two orders; an error of either is the comparison's."""
    gap_fwd, gap_rev = label_gap(forward), label_gap(reverse)
    if isinstance(gap_fwd, ScopeJudgeError):
        return gap_fwd
    if isinstance(gap_rev, ScopeJudgeError):
        return gap_rev
    assert isinstance(forward, LabelLogits)
    assert isinstance(reverse, LabelLogits)
    # Shown second, response_a is label B; 0 less it, so that no gap is -0.0.
    return Score(gap_fwd, 0.0 - gap_rev, label_mass=min(forward.label_mass, reverse.label_mass))


def label_gap(order: LabelLogits | PromptError) -> float | ScopeJudgeError:
    """Logit of the response shown first less that of the other."""
    if isinstance(order, ScopeJudgeError):
        return order
    if not (math.isfinite(order.a) and math.isfinite(order.b)):
        return JudgmentFailedError("the judge's label logits are not finite numbers")
    return order.a - order.b
