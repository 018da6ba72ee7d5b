"""The judge: scores both orders in one engine call, then decides with calibrated thresholds."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from app.core.comparison import (
    Comparison,
    Criterion,
    Judgment,
)
from app.core.errors import (
    JudgmentFailedError,
    LabelsMissingError,
    RequestError,
    ScopeJudgeError,
    StoreCorruptError,
    StoreUnavailableError,
    UnavailableError,
)
from app.core.preference import preference_from_gaps
from app.ports import CallTimes, Engine, LabelLogits, Prompt, PromptError
from app.service.auditing.auditor import Auditor
from app.service.auditing.monitor import Monitor
from app.service.auditing.sampling import Candidate
from app.service.calibration.cache import Calibrations, Usable
from app.service.judging.decisions import AcceptanceRule, PreferenceRow, decide
from app.service.judging.pac_thresholds import PacThresholds
from app.service.judging.prompts import PromptTemplate, rendered_pairs
from app.service.off_loop import off_loop
from app.telemetry import JudgmentFigures, Telemetry

# Largest batch that is decided on the event loop. Handing over to a thread costs as much as a few
# dozen decisions.
_MOST_DECIDED_ON_LOOP = 64
# For each request its calibration set, its error, or None without an alpha.
_Sets = Sequence[Usable | ScopeJudgeError | None]


@dataclass(frozen=True, slots=True)
class Score:
    """The engine's answer to one comparison in both orders.

    Args:
        gap_fwd: Logit of response_a minus logit of response_b, with response_a shown first.
        gap_rev: Logit of response_a minus logit of response_b, with response_a shown second.
        label_mass: Probability on the two labels; the smaller one of the two orders.
    """

    gap_fwd: float
    gap_rev: float
    label_mass: float


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """A comparison, and the alpha, guarantee and calibration set to decide it by."""

    comparison: Comparison
    criterion: Criterion


class Judge:
    """One judge: an engine with a prompt template and a fingerprint.

    Args:
        engine: The started engine.
        template: Template of the prompts.
        calibrations: Cache of the calibration sets that thresholds come from.
        telemetry: Counts outcomes.
        auditor: Draws judgments for audits; None if there are none.
        monitor: Says which criteria are suspended because of audits; None if none ever are.
        name: Name of the judge in answers.
        fingerprint: Fingerprint of the judge; only sets made under this fingerprint are valid.
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
        auditor: Auditor | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        self._engine = engine
        self._template = template
        self._calibrations = calibrations
        self._pac = PacThresholds()
        self._telemetry = telemetry
        self._auditor = auditor
        self._monitor = monitor
        self.name = name
        self.fingerprint = fingerprint

    def close(self) -> None:
        """Cancels the `pac` thresholds that are waiting to be computed."""
        self._pac.close()

    async def judge(self, request: JudgeRequest) -> Judgment:
        """Judges one comparison.

        Raises:
            ScopeJudgeError: The comparison could not be judged.
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
            UnavailableError: The engine is unavailable; too many `pac` thresholds are waiting; or
                no request has a calibration because the store is unavailable. If only some
                requests lack one, each of those gets its error.
            JudgmentFailedError: The engine returned a wrong number of answers; nothing was judged.
        """
        # Look the sets up first: comparisons without a set are not sent to the engine.
        calibrations = await self._calibrations_of(requests)
        lost = [each for each in calibrations if isinstance(each, StoreUnavailableError)]
        if lost and len(lost) == len(requests):
            raise lost[0]
        # Find the thresholds before the engine call: if too many are waiting, no engine work is
        # wasted.
        thresholds, refused = await self._pac_thresholds(requests, calibrations)
        calibrations = _with_labels(requests, calibrations, refused)
        suspended = await self._suspended(requests, calibrations)
        to_score = [
            i for i, each in enumerate(calibrations) if not isinstance(each, ScopeJudgeError)
        ]
        answers = await self.score([requests[i].comparison for i in to_score])
        scores = dict(zip(to_score, answers, strict=True))
        begun = time.perf_counter()
        decide_all = partial(
            self._decide_all, requests, calibrations, scores, thresholds, suspended
        )
        if len(requests) <= _MOST_DECIDED_ON_LOOP:
            outcomes = decide_all()
        else:
            outcomes = await off_loop(decide_all)
        self._telemetry.observe_stage("decide", time.perf_counter() - begun)
        self._telemetry.count_stale_judgments(
            sum(isinstance(each, Usable) and each.age_s > 0 for each in calibrations)
        )
        self._calibrations.traffic.note(
            [request.comparison for request in requests], outcomes, calibrations
        )
        if self._auditor is not None and self._auditor.rate > 0:
            await self._audit(self._auditor, requests, calibrations, scores, outcomes)
        return outcomes

    async def _audit(
        self,
        auditor: Auditor,
        requests: Sequence[JudgeRequest],
        calibrations: _Sets,
        scores: Mapping[int, Score | ScopeJudgeError],
        outcomes: list[Judgment | ScopeJudgeError],
    ) -> None:
        """Draws some of the judgments for audits, and names the draws in the outcomes."""
        candidates: dict[int, Candidate] = {}
        for i, (outcome, usable) in enumerate(zip(outcomes, calibrations, strict=True)):
            score = scores.get(i)
            if (
                isinstance(outcome, Judgment)
                and isinstance(usable, Usable)
                and isinstance(score, Score)
            ):
                candidates[i] = Candidate(
                    *(requests[i].comparison, outcome, usable.calibration),
                    *(score.gap_fwd, score.gap_rev),
                )
        drawn = await auditor.draw(list(candidates.values()))
        for (i, candidate), audit in zip(candidates.items(), drawn, strict=True):
            if audit is not None:
                outcomes[i] = replace(candidate.judgment, audit=audit)

    async def _pac_thresholds(
        self, requests: Sequence[JudgeRequest], calibrations: _Sets
    ) -> tuple[Mapping[Criterion, float], Mapping[Criterion, LabelsMissingError]]:
        """Returns the threshold of each `pac` criterion, and errors for those that lack labels.

        Those of `marginal` are looked up in `_decide_all`.
        """
        asked = {
            request.criterion: usable.calibration
            for request, usable in zip(requests, calibrations, strict=True)
            if request.criterion.guarantee == "pac" and isinstance(usable, Usable)
        }
        found = await self._pac.find(asked.items()) if asked else {}
        refused = {key: each for key, each in found.items() if isinstance(each, LabelsMissingError)}
        return {key: each for key, each in found.items() if isinstance(each, float)}, refused

    async def _suspended(
        self, requests: Sequence[JudgeRequest], calibrations: _Sets
    ) -> Collection[Criterion]:
        """Returns the criteria under which judgments abstain because of audits."""
        if self._monitor is None or not self._monitor.suspends:
            return ()
        asked = {
            request.criterion: usable.calibration
            for request, usable in zip(requests, calibrations, strict=True)
            if isinstance(usable, Usable)
        }
        return await self._monitor.suspended(asked.items())

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
        """Scores comparisons; both orders of all of them are one engine call.

        Returns:
            For each comparison, in order, its score or its own error. An error in either order is
            the error of the comparison.

        Raises:
            UnavailableError: The engine is unavailable; nothing was scored.
            JudgmentFailedError: The engine returned a wrong number of answers.
        """
        if not comparisons:
            return []
        times = CallTimes()
        with times.rendering():
            prompts = await rendered_pairs(self._template, comparisons)
        logits = await self._logits(prompts, times)
        if len(logits) != len(prompts):
            raise JudgmentFailedError(
                f"the engine returned {len(logits)} answers to {len(prompts)} prompts"
            )
        pairs = zip(logits[::2], logits[1::2], strict=True)
        return [score_of_orders(forward, reverse) for forward, reverse in pairs]

    async def _logits(
        self, prompts: Sequence[Prompt], times: CallTimes
    ) -> list[LabelLogits | PromptError]:
        """Calls the engine, and observes the time of each stage."""
        self._telemetry.count_engine_prompts(len(prompts))
        rendered_s, begun = times.render_s, time.perf_counter()
        try:
            return await self._engine.label_logits(prompts, times)
        except UnavailableError as exc:
            self._telemetry.count_engine_error(exc.code)
            raise
        finally:
            call_s = time.perf_counter() - begun
            # The engine adds its tokenising to `render_s`; subtract only that part.
            model_s = call_s - (times.render_s - rendered_s) - times.queue_s
            self._telemetry.observe_stage("render", times.render_s)
            self._telemetry.observe_stage("queue", times.queue_s)
            self._telemetry.observe_stage("engine", max(0.0, model_s))

    async def _calibrations_of(
        self, requests: Sequence[JudgeRequest]
    ) -> list[Usable | ScopeJudgeError | None]:
        """For each request, its calibration set, its error, or None without an alpha."""
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
        calibrations: _Sets,
        scores: Mapping[int, Score | ScopeJudgeError],
        thresholds: Mapping[Criterion, float],
        suspended: Collection[Criterion],
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
        # One rule for each criterion: most batches have only one.
        rules: dict[Criterion, AcceptanceRule] = {}
        for (i, score), *numbers in zip(
            scored.items(), *map(np.ndarray.tolist, columns), strict=True
        ):
            criterion, calibration = requests[i].criterion, calibrations[i]
            assert not isinstance(calibration, ScopeJudgeError)
            if criterion not in rules:
                rules[criterion] = AcceptanceRule.of(
                    criterion, calibration, thresholds, suspended=criterion in suspended
                )
            found[i] = decide(
                PreferenceRow(*numbers),
                criterion,
                rules[criterion],
                label_mass=score.label_mass,
                min_label_mass=self._calibrations.min_label_mass,
                judge=self.name,
            )
        outcomes = [found[i] for i in range(len(requests))]
        for outcome in outcomes:
            self._count(outcome)
        return outcomes


def _with_labels(
    requests: Sequence[JudgeRequest],
    calibrations: _Sets,
    refused: Mapping[Criterion, LabelsMissingError],
) -> list[Usable | ScopeJudgeError | None]:
    """The calibrations, with an error in place of each that lacks labels for its criterion.

    Args:
        requests: The requests.
        calibrations: For each request, its calibration, its error, or None without an alpha.
        refused: The errors of `pac` criteria.
    """
    found: list[Usable | ScopeJudgeError | None] = []
    for request, usable in zip(requests, calibrations, strict=True):
        missing: LabelsMissingError | None = None
        if isinstance(usable, Usable):
            missing = refused.get(request.criterion)
            if request.criterion.guarantee == "marginal" and usable.calibration.unlabelled:
                missing = usable.calibration.labels_missing(None, None)
        found.append(missing or usable)
    return found


def score_of_orders(
    forward: LabelLogits | PromptError, reverse: LabelLogits | PromptError
) -> Score | ScopeJudgeError:
    """The score of a comparison from its two orders; an error in either order is returned."""
    gap_fwd, gap_rev = label_gap(forward), label_gap(reverse)
    if isinstance(gap_fwd, ScopeJudgeError):
        return gap_fwd
    if isinstance(gap_rev, ScopeJudgeError):
        return gap_rev
    assert isinstance(forward, LabelLogits)
    assert isinstance(reverse, LabelLogits)
    # In the reverse order response_a is label B. `0.0 - x`, because `-x` makes -0.0 of a tie, and
    # -0.0 would be written as another number than 0.0.
    return Score(gap_fwd, 0.0 - gap_rev, label_mass=min(forward.label_mass, reverse.label_mass))


def label_gap(order: LabelLogits | PromptError) -> float | ScopeJudgeError:
    """Logit of the response shown first minus logit of the other one, or the error."""
    if isinstance(order, ScopeJudgeError):
        return order
    if not (math.isfinite(order.a) and math.isfinite(order.b)):
        return JudgmentFailedError("the judge's label logits are not finite numbers")
    return order.a - order.b
