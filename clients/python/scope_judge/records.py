"""The answers of the service: declared here, built by the service and read by the client.

The descriptions of the fields are those of the OpenAPI document; MEANINGS has those that several
records share. The client ignores fields that a later service adds.
"""

from dataclasses import dataclass
from typing import Literal

from scope_judge.errors import ScopeError, class_of

Verdict = Literal["A", "B", "abstain"]
Side = Literal["A", "B"]
Label = Literal["A", "B", "tie"]
Guarantee = Literal["marginal", "pac"]
Reason = Literal[
    "thought_unfinished",
    "escalation_unavailable",
    "off_task",
    "no_preference",
    "suspended",
    "infeasible",
    "uncertain",
]
NoReward = Literal[
    "suspended",
    "infeasible",
    "abstained",
    "failed",
    "few_accepted",
    "tied",
    "empty",
    "unopposed",
]
Status = Literal["open", "labelled", "closed", "expired"]
# "none" closes an audit that nobody can label.
AuditLabel = Label | Literal["none"]
Event = Literal["closed", "label_changed", "alarm", "alarm_ended", "resumed"]
OnAlarm = Literal["report", "abstain"]
Light = Literal["green", "amber", "red"]
Identifier = str | int

# The meaning of a field in every record that does not describe it.
MEANINGS = {
    "added": "New examples.",
    "alpha": "Largest share of wrong verdicts among accepted ones.",
    "audit_rate": "Value of `SCOPE_AUDIT_RATE`.",
    "b": "Index of the other response; None for the reference.",
    "delta": "Probability that `pac` fails; None with `marginal`.",
    "failed": "Examples that the judge could not judge.",
    "fingerprint": "Digest of model, prompt, prefill and label tokens. A calibration serves one "
    "fingerprint only.",
    "guarantee": "`marginal` or `pac`.",
    "id": "Your text or number for the pair; the answer repeats it.",
    "judge": "Name of the judge.",
    "label_mass": "Probability of the two label tokens together, in the order where it is smaller; "
    "None if the judge does not report it.",
    "min_label_mass": "Value of `SCOPE_MIN_LABEL_MASS`.",
    "n": "Number of examples in the set, with and without labels.",
    "name": "Name of the calibration set.",
    "note": "The same in a sentence.",
    "on_alarm": "Value of `SCOPE_ON_ALARM`.",
    "pool_ties": "Pairs that people found equal, in a pool or not; thresholds leave them out, and "
    "drift compares their scores.",
    "rate": "Probability with which the comparison was drawn.",
    "risk_level": "Smallest alpha that accepts a judgment of this uncertainty; None under `pac`, "
    "without alpha, or if no alpha accepts it. Like alpha, it describes all judgments that such an "
    "alpha accepts. It is not the probability that this judgment is wrong, and can be small for a "
    "pair that differs from the labeled ones.",
    "small": "The score of a cascade's small judge; None for a judge alone.",
    "ties": "Examples labeled `tie`; the set keeps their scores, and thresholds leave them out.",
    "uncertainty": "Entropy of the average preference, in nats, from 0 to ln 2.",
    "unlabelled": "Pairs of a pool that have no label yet.",
    "updated": "Examples that were in the set already and have been replaced.",
    "usage": "The work of the judge for this request.",
    "version": "Version of the calibration set.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OfCriterion:
    """The criterion that an answer is about."""

    alpha: float
    guarantee: Guarantee
    delta: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationReference:
    """A version of a calibration set, such as the one that a judgment was made with."""

    name: str
    version: int
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LargeUsage:
    """The work of the large judge of a cascade for one request; kept scores cost nothing.

    Args:
        comparisons: Comparisons that it was asked about.
        engine_prompts: Prompts that it read.
        prompt_tokens: Tokens of these prompts.
    """

    comparisons: int
    engine_prompts: int
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestUsage:
    """The work of the judge for one request; kept scores cost nothing.

    Args:
        engine_prompts: Prompts that the judge read for this request; 0 if all its scores were kept.
            Those of a cascade's small judge.
        prompt_tokens: Tokens of these prompts; 0 for a judge that does not count them.
        large: The work of a cascade's large judge; None for a judge alone, and if it was not asked.
    """

    engine_prompts: int
    prompt_tokens: int
    large: LargeUsage | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReference:
    """The audit of a judgment, drawn at random.

    Args:
        id: Id of the audit, for its label.
    """

    id: str
    rate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One judge of a cascade that was asked.

    Args:
        p_bar: Its average probability that response A is better; None if it gave no score.
        uncertainty: Its uncertainty in nats; None if it gave no score.
        threshold: Largest uncertainty at which it decides; None if it decides nothing.
    """

    judge: str
    p_bar: float | None
    uncertainty: float | None
    threshold: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgment:
    """A verdict or an abstention; all probabilities are of response A being preferred.

    An abstention is not a verdict: `preferred` is then only a hint, without any guarantee.

    Args:
        verdict: The accepted verdict, or `abstain`.
        preferred: The response that the judge prefers, even if it abstains; None if it has no
            preference.
        reason: Reason of an abstention; None for a verdict.
        p_fwd: Probability that response A is better, with response A shown first. None, like the
            four fields after it, if the judge has no score to give (`thought_unfinished` and
            `escalation_unavailable`).
        p_rev: The same probability, with response B shown first.
        p_bar: Average of the two.
        confidence: The larger of `p_bar` and 1 - `p_bar`.
        threshold: Largest accepted uncertainty in nats; None if nothing is accepted or without
            alpha.
        alpha: Largest share of wrong verdicts among accepted ones; None if the judgment promises
            nothing.
        guarantee: `marginal` or `pac`; None without alpha.
        calibration: The calibration that the judgment rests on; None without alpha.
        audit: The audit, if this judgment was drawn at random for one; else None.
        orders: Number of orders of the responses that the judge has seen: 2, or 1 for a judge that
            sees each response alone.
        temperature: Number by which the gap of a judge that sees each response alone was divided,
            fitted on the calibration set; 1 without alpha; None for other judges.
        cached: Whether the score is that of an earlier call (`SCOPE_SCORE_CACHE`).
        bounded: Whether a probability of the judge was exactly 0 or 1. The service then uses half a
            step of its rounding, so the pair may be more certain than it shows.
        decided_by: Name of the judge of a cascade whose numbers these are; None for a judge alone,
            and if none decided (`escalation_unavailable`).
        rungs: The judges of a cascade that were asked, in order; None for a judge alone.
        explanation: With `explain`, the first thought of a judge that thinks, or a text that
            another judge writes after the verdict, if it has a preference: it is not the reason
            for the verdict, and the promise does not cover it. None without `explain`, or if the
            judge did not write it.
    """

    id: Identifier | None
    verdict: Verdict
    preferred: Side | None
    reason: Reason | None
    p_fwd: float | None
    p_rev: float | None
    p_bar: float | None
    uncertainty: float | None
    confidence: float | None
    threshold: float | None
    alpha: float | None
    guarantee: Guarantee | None
    delta: float | None
    risk_level: float | None
    label_mass: float | None
    calibration: CalibrationReference | None
    judge: str
    audit: AuditReference | None
    orders: int
    temperature: float | None
    cached: bool
    bounded: bool
    decided_by: str | None = None
    rungs: tuple[Rung, ...] | None = None
    explanation: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether there is a verdict, and no abstention."""
        return self.verdict != "abstain"


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleJudgment(Judgment):
    """The judgment of a request with one pair, in words and with its cost.

    Args:
        words: The judgment in a sentence, with the reason of an abstention.
    """

    words: str
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One invalid field of a request.

    Args:
        field: Its name.
        message: The fault of its value.
    """

    field: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """An error as an RFC 9457 problem: `code` is for programs, `detail` is for people.

    Args:
        type: URN of the error.
        title: The kind of the error in words.
        status: HTTP status.
        detail: The fault of this request, and advice.
        code: Stable code of the error.
        errors: The invalid fields; None for other errors.
    """

    type: str = "about:blank"
    title: str = ""
    status: int
    detail: str
    code: str
    errors: tuple[Fault, ...] | None = None

    def exception(self) -> ScopeError:
        """The error as the exception that a request with a single item would raise."""
        return class_of(self.status, self.code)(self.detail, code=self.code, status=self.status)


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemError:
    """The error of one item of a batch, in place of its judgment; it is never a verdict."""

    id: Identifier | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgmentBatch:
    """One result for each comparison, in the same order."""

    results: tuple[Judgment | ItemError, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class CascadeChoice:
    """The choice between a cascade and its large judge alone at one alpha, and its cost.

    Args:
        serves: `cascade`, or `large` if every pair goes to the large judge.
        why: The reason in a sentence.
        escalated: Share of the set's pairs that the large judge is asked about: its cost against
            the large judge alone.
    """

    serves: Literal["cascade", "large"]
    why: str
    escalated: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold(OfCriterion):
    """The threshold of one alpha and guarantee, with coverage and risk on the set's examples.

    Args:
        threshold: Largest accepted uncertainty in nats; None if nothing is accepted.
        coverage: Share of the set's pairs that are accepted: of all of them under `marginal`, and
            of one pair of each question under `pac`.
        empirical_risk: Share of errors among the accepted ones; None if none is accepted.
        feasible: Whether anything is accepted at this alpha.
        labels_missing: Whether the threshold depends on labels that the set does not have yet;
            nothing is accepted then.
        tie_share: Share of ties among the accepted pairs that have a label; None if nothing is
            accepted. The promise leaves them out.
        tie_interval: The 95% interval of `tie_share`.
        cascade: The choice of judges, for the set of a cascade, whose `threshold` is the large
            judge's; else None.
    """

    threshold: float | None
    coverage: float
    empirical_risk: float | None
    feasible: bool
    labels_missing: bool
    tie_share: float | None
    tie_interval: tuple[float, float] | None
    cascade: CascadeChoice | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration(CalibrationReference):
    """One version of a calibration set.

    Args:
        accuracy: Share of examples on which the judge agrees with the label; None for an empty set,
            and while labels are missing.
        labelled: Pairs with a preferred side.
        questions: Different questions among its pairs.
        counted: Pairs that `pac` counts: one of each question, without ties and pairs off task.
        cascade_share: r, the share of which a cascade's small judge is surest and that it may
            decide; None for a judge alone.
    """

    judge: str
    fingerprint: str
    accuracy: float | None
    labelled: int
    unlabelled: int
    pool_ties: int
    questions: int
    counted: int
    thresholds: tuple[Threshold, ...]
    cascade_share: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleError:
    """The error of an example that was not added, with its index in the batch and its id.

    Args:
        index: Position in the batch, from 0.
    """

    index: int
    id: Identifier | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect(OfCriterion):
    """The effect of a change on one criterion in use.

    Args:
        becomes_infeasible: Whether there are verdicts before the change but not after it.
        more_labels: Fewest further labels with which it can be feasible after the change; 0 if it
            is feasible, None if more are not known to help.
    """

    before: Threshold
    after: Threshold
    becomes_infeasible: bool
    more_labels: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedAlarm(OfCriterion):
    """A criterion whose alarm was ended.

    Args:
        rang_at: Time of the alarm, in UTC.
    """

    rang_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationChange(Calibration):
    """The calibration set after a change, with its effects on the criteria in use.

    Args:
        dry_run: Whether nothing has changed, and the set is described as it would be, with the
            number of its current version.
        removed: Examples that left the set: with `replace`, all others.
        effects: The effect on each criterion in use; None if nobody looked at the change before it
            was made, as for examples that are only added.
        ends_alarms: The active alarms that the change ends; None likewise.
        note: The effects in a sentence; None likewise.
    """

    dry_run: bool
    added: int
    updated: int
    removed: int
    effects: tuple[Effect, ...] | None
    ends_alarms: tuple[EndedAlarm, ...] | None
    note: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationReport(CalibrationChange):
    """The calibration set after a batch was added, with the counts and errors of that batch.

    Args:
        changed_labels: Pairs whose label is another one than before, in the set or in the batch.
    """

    ties: int
    changed_labels: int
    failed: int
    errors: tuple[ExampleError, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsorbReport(CalibrationChange):
    """The calibration set after labeled audits were absorbed, with their counts.

    Without an alarm, audits up to the first open one are added. `effects` has the criteria in use:
    those of draws by the current version and of the absorbed audits, and those that the answering
    process judged by lately.

    Args:
        replaced: Whether the audits replace all examples, as after an alarm.
        unlabelled_audits: Audits that were left out because they were closed or have expired.
        waiting: Labels of later audits, which wait for an open one.
    """

    replaced: bool
    ties: int
    unlabelled_audits: int
    waiting: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """The consequences of the deletion of a calibration set, which is still there.

    Its trail and the keys that are limited to it stay.

    Args:
        version: Version of the set; None if it cannot be read.
        n: Number of its examples; None if it cannot be read.
        in_use: The threshold of each criterion in use; judgments under it get 404
            `calibration_not_found`.
        audits: Audits of the set, which stay.
        alarms: Active alarms of the set, which stay active if it comes back.
    """

    name: str
    version: int | None
    n: int | None
    in_use: tuple[Threshold, ...]
    audits: int
    alarms: tuple[EndedAlarm, ...]
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One point of the risk-coverage curve.

    Args:
        coverage: Share of the calibration set that is accepted, under `pac` of the pairs that it
            counts.
        empirical_risk: Share of errors among the accepted examples; None if none is accepted.
    """

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Infeasible(OfCriterion):
    """An alpha at which nothing is accepted, and what would make it feasible.

    Args:
        more_examples: Fewest further examples with which this alpha can be feasible; None if more
            are not known to help. The promise does not cover adding labels until it is feasible.
    """

    more_examples: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FeasibleAlphas:
    """The alphas at which the present examples accept something, in steps of 0.001 below 1.

    Each alpha keeps its own promise. One that is chosen here does not: of the alphas from 0.02 to
    0.30, some one was exceeded in up to 29% of simulated calibrations with delta 0.10.

    Args:
        intervals: First and last alpha of each row of consecutive feasible alphas.
    """

    guarantee: Guarantee
    delta: float | None
    intervals: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationDetail(Calibration):
    """A calibration set with its quality and its risk-coverage curve of at most 200 points.

    Args:
        accuracy_interval: 95% interval of `accuracy` (Wilson); None where `accuracy` is None.
        auroc: Area under the ROC curve of confidence as a predictor of a correct verdict.
        expected_calibration_error: Average distance between confidence and accuracy.
        position_flips: Share of examples on which the two orders prefer different responses; None
            for a judge that sees no order.
        unanimous: Share of examples whose votes are all for one response; None for a judge that
            does not vote.
        mean_label_mass: Mean label mass of the examples; None if an example has none.
        temperature: Number by which the gaps of a judge that sees each response alone are divided,
            fitted on the examples; 1 while labels are missing; None for other judges.
        off_task: Number of examples below `SCOPE_MIN_LABEL_MASS`, which thresholds leave out.
        unscored: Number of examples to which the judge gave no score (`thought_unfinished`), which
            thresholds leave out; coverage is a share of all examples.
        feasible_alphas: All alphas at which something is accepted, for each guarantee. The promise
            does not cover choosing one of them after seeing them.
        requested: The `pac` thresholds of the alphas in the URL, each at the whole of delta.
    """

    accuracy_interval: tuple[float, float] | None
    auroc: float | None
    expected_calibration_error: float | None
    position_flips: float | None
    unanimous: float | None = None
    mean_label_mass: float | None
    temperature: float | None
    off_task: int
    unscored: int = 0
    infeasible: tuple[Infeasible, ...]
    feasible_alphas: tuple[FeasibleAlphas, ...]
    requested: tuple[Threshold, ...]
    curve: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationPage:
    """One page of the calibration sets.

    Args:
        next_after: Name to send as `after` for the next page; None on the last one.
    """

    calibrations: tuple[Calibration, ...]
    next_after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """One change in the trail of a calibration set.

    Args:
        version: Version that the change made.
        write_id: Unique id of the write; None for a deletion, which also takes a version number.
        action: `calibrate`, `pool`, `import`, `absorb`, `rollback` or `delete`.
        at: Time of the change in UTC (ISO 8601).
        by: Name of the key that made the change.
        removed: Examples that left the set; None if the set could not be read.
        min_label_mass: `SCOPE_MIN_LABEL_MASS` of the service that made the change.
        rolled_back_to: The version that a rollback restored.
        thresholds_after: `guarantee:alpha` -> threshold in nats, None if infeasible, without those
            that depend on missing labels; None for a deletion.
    """

    version: int
    write_id: str | None
    action: str
    at: str
    by: str
    added: int
    updated: int
    ties: int
    removed: int | None
    failed: int
    n: int
    min_label_mass: float | None
    judge: str | None
    fingerprint: str | None
    rolled_back_to: int | None
    thresholds_after: dict[str, float | None] | None
    unlabelled: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """The changes of a calibration set, newest first; unreadable changes are left out."""

    name: str
    versions: tuple[Version, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeScore:
    """The score of one judge.

    Args:
        gap_fwd: Logit of response A minus that of response B, with response A shown first; None,
            like the other fields, if the judge gave no score.
        gap_rev: The same difference with response B shown first; None for a judge that sees no
            order.
    """

    gap_fwd: float | None
    gap_rev: float | None
    label_mass: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PairScore(JudgeScore):
    """The judge's result for one pair: a score, the reason why there is none, or an error.

    Args:
        reason: Reason for which the judge gives no score; None with a score or an error.
        error: Why the pair was not judged; None if it was.
    """

    reason: Reason | None = None
    small: JudgeScore | None = None
    error: Problem | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PairScores:
    """The scores of pairs without labels, in order. No set changes, and nothing is decided.

    Args:
        scores: The score of each pair; of a cascade that of its large judge, with the small one's.
    """

    judge: str
    fingerprint: str
    scores: tuple[PairScore, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class CascadePlan:
    """The plan of a cascade, which is fixed on pairs without labels before the first label.

    Args:
        version: Version of the set that has the plan; None if nothing was written.
        pairs: Number of pairs.
        share: r, the share of which the small judge is surest and that it may decide; 0 if every
            pair is to go to the large judge.
        contradictions: Share of the pairs on which the two judges contradict each other.
        contradictions_within: The same within r; None for r = 0.
        escalated: Share of the pairs that the large judge is asked about at least.
    """

    name: str
    version: int | None
    pairs: int
    share: float
    contradictions: float
    contradictions_within: float | None
    escalated: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredExample(JudgeScore):
    """The scores and the label of one example.

    Args:
        digest: Digest of the comparison and the judge: 64 hexadecimal digits.
        label: The better response, or `tie`; None for a pair without a label.
        question: Digest of the question alone; None if it is unknown.
        is_reversed: Whether response A comes after response B by code points. A set keeps the pair,
            its scores and its label in the other order.
    """

    digest: str
    label: Label | None
    question: str | None
    is_reversed: bool = False
    small: JudgeScore | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """A judged batch that was added to no set: its scores in order, without the failed examples.

    Args:
        scores: The judged examples and ties in order, without those in `errors`.
    """

    judge: str
    fingerprint: str
    scores: tuple[ScoredExample, ...]
    ties: int
    failed: int
    errors: tuple[ExampleError, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExamplePage(CalibrationReference):
    """One page of the examples of a calibration set, sorted by digest; texts are not kept.

    Args:
        version: Version of the set. If it differs between two pages, the set has changed: begin
            again.
        release: Release of scope-judge that made the version.
        examples: The examples of this page, sorted by digest. The last digest is the `after` of the
            next page.
    """

    judge: str
    fingerprint: str
    min_label_mass: float
    release: str | None
    examples: tuple[ScoredExample, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolReport(CalibrationReference):
    """The calibration set after pairs without labels were added to it.

    Args:
        labelled: Examples with a preferred side.
        known: Pairs that were in the set already; they keep their labels.
        digests: Digest of each pair, in order, by which `GET /calibrations/{name}/next` names it;
            None if it failed.
    """

    labelled: int
    unlabelled: int
    pool_ties: int
    added: int
    known: int
    failed: int
    digests: tuple[str | None, ...]
    errors: tuple[ExampleError, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class NextLabels(CalibrationReference):
    """The pairs to label next, in this order, for one alpha and delta under "pac".

    Args:
        n: Pairs that `pac` counts.
        labelled: Pairs of these that have a label.
        needed: Labels before the next test; 0 once the threshold is known.
        complete: Whether the threshold is known.
        threshold: The threshold that all labels would give, in nats; None if it is not known or
            nothing is accepted.
        feasible: Whether anything is accepted.
        digests: The pairs to label next, by rising uncertainty.
        words: How many labels are missing, in a sentence.
    """

    alpha: float
    delta: float
    labelled: int
    needed: int
    complete: bool
    threshold: float | None
    feasible: bool
    digests: tuple[str, ...]
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One message of a conversation.

    Args:
        role: Its author: `user`, `assistant` or `system`.
        content: Its text.
    """

    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTexts:
    """The texts of a drawn comparison, in the order of the audit's id.

    Args:
        question: The question: a text, or the conversation so far as a list of messages.
        response_a: The first response: a text, or a list of texts, one per turn.
        response_b: The second response, likewise.
    """

    question: str | tuple[Turn, ...]
    response_a: str | tuple[str, ...]
    response_b: str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """One drawn comparison, without the verdict.

    Args:
        id: Id of the first judgment of the comparison.
        calibration: Name of the calibration set.
        status: Whether it waits for a label, has one, or takes none any more.
        drawn_at: Time of the first judgment, in UTC.
        drawn_by: Name of the key that asked for the first judgment.
        expires_at: Time until which the audit takes its first label, in UTC.
        label: The label, in the order of the first judgment; `none` if the audit was closed, None
            if it has no label.
        labelled_at: Time of the first label, in UTC.
        labelled_by: Name of the key that sent the present label, or closed the audit.
        texts: The texts in the order of `id`; None unless the request asks for them.
    """

    id: str
    calibration: str
    status: Status
    rate: float
    drawn_at: str
    drawn_by: str
    expires_at: str
    label: AuditLabel | None
    labelled_at: str | None
    labelled_by: str | None
    texts: PairTexts | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Some drawn comparisons.

    Args:
        open: Number of open audits; None unless the request asks for texts.
        without_texts: Number of those whose texts the service does not have; None likewise.
        next_after: Value of `after` for the next page; None on the last one.
    """

    audits: tuple[Audit, ...]
    open: int | None
    without_texts: int | None
    next_after: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierLabel:
    """A pair that somebody else has labeled first.

    Args:
        id: Id of the audit, as it was sent.
        labeler: Name of the key that labeled it first.
    """

    id: str
    labeler: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLabels:
    """Effect of the labels, and the ids whose labels were not taken.

    Args:
        labelled: Audits that got their first label.
        closed: Audits without a label that were closed.
        updated: Labels that replaced another one.
        unchanged: Labels that the audits had already, or that have a later one in the request.
        unknown: Number of ids without an audit.
        expired: Audits that were not labeled in time, and take no more labels.
        unknown_ids: The ids without an audit.
        expired_ids: The ids of expired audits.
        earlier: Pairs that somebody else has labeled first: that label stays.
    """

    labelled: int
    closed: int
    updated: int
    unchanged: int
    unknown: int
    expired: int
    unknown_ids: tuple[str, ...]
    expired_ids: tuple[str, ...]
    earlier: tuple[EarlierLabel, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The alarms of a set that were ended; none if there was none."""

    name: str
    resumed: tuple[EndedAlarm, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEvent:
    """One entry of the trail of a set's audits.

    `closed` and `label_changed` have `id`, `before` and `after`, in the order of that id. `alarm`,
    `alarm_ended` and `resumed` have the criterion and the current version.

    Args:
        event: `closed`, `label_changed`, `alarm`, `alarm_ended` (by a new version) or `resumed` (by
            a person).
        at: Time of the event, in UTC.
        by: Name of the key that sent the label, made the version or resumed; `service` if an
            expired draw caused the alarm.
        reason: The reason that the key gave for closing or resuming.
        id: Id of the audit.
        before: The label that was replaced; None if the audit had none.
        after: The label since then; `none` if the audit was closed.
        version: The version that rang, or the current version when the alarm ended.
        errors: Errors that the labels showed when the alarm rang.
        audited: Labels that counted then.
        suspended: Whether judgments under the criterion abstained from then on (`SCOPE_ON_ALARM`).
        audits: Number of audits since the alarm that replace all examples by an absorption; None
            for the other events.
    """

    event: Event
    at: str
    by: str
    reason: str | None
    id: str | None
    before: AuditLabel | None
    after: AuditLabel | None
    alpha: float | None
    guarantee: Guarantee | None
    delta: float | None
    version: int | None
    errors: int | None
    audited: int | None
    suspended: bool | None
    audits: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditTrail:
    """Entries of the trail of a set's audits, newest first.

    Args:
        next_before: Value of `before` for the next page; None on the last one.
    """

    name: str
    entries: tuple[AuditEvent, ...]
    next_before: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmTimes:
    """When an alarm was raised; all None without an alarm.

    Args:
        rang_at: Time at which the active alarm rang, in UTC; None without an alarm, and until it is
            recorded.
        rang_version: Version of the set that the alarm rang for.
    """

    rang_at: str | None
    rang_version: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitoredCriterion(AlarmTimes):
    """The audits of one criterion under this version of the set.

    The labels of drawn accepted judgments count by question, in the order of the first draws. As
    long as the error of a random question is at most alpha, `evidence` reaches `alarm_evidence`
    with probability at most 1 / `alarm_evidence`, whenever and how often it is looked at; over all
    criteria of the version these sum to at most 0.05. `error_interval` holds a constant true error
    at all times with probability 0.95.

    Args:
        labelled: Labels of accepted judgments that count, ties among them.
        audited: Labels of accepted judgments that count, without ties.
        errors: Labels that differ from the verdict.
        closed: Draws that were closed without a label: right for `evidence`, errors for
            `certificate`, and both for the interval.
        questions: Questions that count: the draws of each make one bet, on their mean error.
        error_interval: Lowest and highest error that the labels allow.
        evidence: Evidence that the error is above alpha.
        alarm_evidence: Evidence at which the alarm of this criterion starts.
        alarm: Whether an alarm is active: the evidence has reached its line, by this version or an
            earlier one. It ends by a version with enough new examples, or by POST
            /calibrations/{name}/resume.
        alarm_at: Number of the question at which it did, from 1; None without an alarm.
        certificate: Evidence that the error is at most alpha; closed and expired draws count as
            errors.
        certified: Whether the certificate has reached 20, and there is no alarm.
        certified_at: Number of the question at which it did, from 1; None if not certified.
        suspended: Whether judgments under this criterion abstain because of the alarm
            (`SCOPE_ON_ALARM`).
        ties: Labels `tie` among them, which are neither right nor wrong.
        tie_interval: Lowest and highest share of ties among accepted judgments that the labels
            allow.
        repeated: Draws that are left out because their question has counted on that day already.
        waiting: Labels and closed draws that wait for an open draw of an earlier question, or for
            the end of the hour in which draws of their question count.
        open: Audited verdicts that wait for a label.
        expired: Audited verdicts that got no label in time.
        abstentions: Drawn abstentions, which have no part in the error.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    labelled: int
    audited: int
    errors: int
    closed: int
    questions: int
    error_interval: tuple[float, float]
    evidence: float
    alarm_evidence: float
    alarm: bool
    alarm_at: int | None
    certificate: float
    certified: bool
    certified_at: int | None
    suspended: bool
    ties: int
    tie_interval: tuple[float, float]
    repeated: int
    waiting: int
    open: int
    expired: int
    abstentions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftStream(AlarmTimes):
    """Evidence of the answering process that a value of its judgments is unlike the labeled ones.

    Args:
        evidence: The evidence, which by chance alone reaches 20 for any of the values of a version
            with probability at most 0.05.
        alarm: Whether the evidence has reached 20.
    """

    evidence: float
    alarm: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """Evidence of drift in the values of the judgments by this version.

    Args:
        uncertainty: Evidence from the uncertainty.
        position_gap: Evidence from the effect of the order of the responses; None for a judge that
            sees no order.
        label_mass: Evidence from the label mass; None if an example of the set has none.
        large_uncertainty: Evidence from the uncertainty of a cascade's large judge, where it is
            asked at any alpha; None for a judge alone. The others are the small judge's.
    """

    uncertainty: DriftStream
    position_gap: DriftStream | None
    label_mass: DriftStream | None
    large_uncertainty: DriftStream | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery(OfCriterion):
    """How the set gets verdicts again after an alarm, without breaking the promise.

    `audits` follows from the criterion of that alarm, and not from any label. With as many,
    verdicts come back with probability 0.8 if the judge is wrong
    in at most 0.6 alpha of its most certain pairs.

    Args:
        since: Time of the first active alarm, in UTC.
        audits: Number of audits that replace all examples: the first ones since the alarm; None if
            a set has no room for so many.
        drawn: Audits that were drawn since that alarm.
        labelled: Audits with a label or closed, of the first `audits`.
    """

    since: str
    audits: int | None
    drawn: int
    labelled: int
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Monitor:
    """The audits of a calibration set's current version, and the drift of its traffic.

    Args:
        criteria: The audits of the first 64 criteria that judgments of this version were drawn
            under: those with an alarm first, then those with the most labels.
        refused: Number of draws under further criteria that the answering process has not made.
        drift: Drift without labels, in three values of the judgments.
        alarm: Whether any criterion or any value of `drift` has an alarm.
        light: `red` with an alarm; `green` if labels of this version count, no error interval
            reaches above its alpha and there is nothing to do; otherwise `amber`.
        alarm_evidence: Evidence at which an alarm of `drift` or a certificate starts; each
            criterion has its own line for its alarm.
        summary: How wrong the verdicts are, in a sentence, with the time of the alarm.
        note: The next step, in words; None if there is none.
        recovery: The audits that an absorption takes after an alarm; None without an alarm.
    """

    name: str
    version: int
    audit_rate: float
    on_alarm: OnAlarm
    criteria: tuple[MonitoredCriterion, ...]
    refused: int
    drift: Drift
    alarm: bool
    light: Light
    alarm_evidence: float
    summary: str
    note: str | None
    recovery: Recovery | None


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyUsage:
    """The use of one key since the replica started.

    Args:
        key: Name of the key; `anonymous` without keys, `service` for the checks of the service.
        comparisons: Comparisons sent to the judge, for judging or calibration.
        prompt_tokens: Tokens of the prompts in both orders; 0 if the judge does not count them.
        verdicts: Judgments with a verdict.
        abstentions: Judgments without a verdict.
        errors: Comparisons that failed.
    """

    key: str
    comparisons: int
    prompt_tokens: int
    verdicts: int
    abstentions: int
    errors: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The use of keys since the replica started.

    Args:
        since: Start of this replica, in UTC.
        keys: All keys by name for an admin; otherwise the caller's key.
    """

    since: str
    keys: tuple[KeyUsage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of one request.

    Args:
        max_batch: Most comparisons in one request.
        max_body_bytes: Most bytes of a request body.
        max_prompt_tokens: Most tokens of a prompt.
    """

    max_batch: int
    max_body_bytes: int
    max_prompt_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionServer:
    """Decision servers as the start has found them; all of it is part of the fingerprint.

    Args:
        hosts: Names of the hosts of the servers.
        answered_as: Name and version of the model in the servers' answers. If a later answer names
            another one, judging stops.
        dialect: Form of requests and answers, found at the start: `systemone`, `openai`, or
            `systemone at /decisions`.
        questions_together: Number of questions in one request: 2, or 1 where the servers take one
            at a time.
        decimals: Decimals to which the servers round probabilities; None if they do not.
    """

    hosts: tuple[str, ...]
    answered_as: str
    dialect: str
    questions_together: int
    decimals: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Scoring:
    """How a chat model that writes its verdicts is asked.

    Args:
        kind: `votes`: the score is the share of sampled verdicts. `thoughts`: the labels are read
            behind a thought, or the verdict behind it is a vote if `think_end` is None.
        samples: Answers or thoughts in each order of the responses.
        temperature: Temperature of the answers and thoughts.
        think_tokens: Longest thought in tokens; None for votes.
        think_end: Text behind a thought.
        left_out: Parameters that the server refuses, or that have no effect there: `n`, `seed` or
            `temperature`. Without `seed`, the same pair can get another answer.
        unanimous: Share of the pairs judged since the start whose votes are all for one response;
            None for thoughts, and without pairs.
        advice: A better temperature, in words; None if it is right, or for too few pairs.
    """

    kind: Literal["votes", "thoughts"]
    samples: int
    temperature: float
    think_tokens: int | None = None
    think_end: str | None = None
    left_out: tuple[str, ...]
    unanimous: float | None = None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeOfCascade:
    """A judge of a cascade.

    Args:
        fingerprint: Its fingerprint, which is part of the cascade's.
    """

    judge: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Info:
    """The judge, the promise, the defaults and the limits of the service.

    Args:
        version: Version of scope-judge.
        commit: Commit of scope-judge; None if unknown.
        kind: Kind of the judge: `chat model` answers with one of two labels, `chat model by votes`
            writes its verdict several times, `chat model that thinks` thinks before it answers with
            a label or writes its verdict, `reward model` gives each response a number,
            `decision server` gives each of two options a probability, `cascade` is a small judge
            before a large one; None if unknown.
        model: Hugging Face id or folder of the model.
        dtype: Number format in which the judge computes; None for kinds of judges without one.
        label_tokens: Token ids of the labels A and B; None for kinds of judges without one.
        prefill: Beginning of the judge's answer; None for kinds of judges without one.
        template: Digest of the prompt template, or of a reward model's chat template; part of the
            fingerprint, and equal for judges that share the template.
        head_dtype: Number format in which the judge computes its logits; None if unknown. Formats
            other than `float32` make scores tie.
        scoring: How the judge is asked for votes or thoughts; None for other kinds of judges.
        decision_server: The decision servers as detected at the start; None for other kinds of
            judges.
        rungs: The small and the large judge of a cascade; None for a judge alone.
        runtime: The part of the installation that decides how scores are rounded: vLLM's version,
            the GPU's compute capability (or the CPU), and how many GPUs share the judge; None if
            unknown. It is not part of the fingerprint.
        default_alpha: Value of `SCOPE_DEFAULT_ALPHA`.
        default_guarantee: Value of `SCOPE_DEFAULT_GUARANTEE`.
        default_delta: Value of `SCOPE_DEFAULT_DELTA`.
        caller: Name of the key of this request; without keys, the name that the header
            `X-Scope-Person` has, or `anonymous`. It stands beside labels and changes of sets.
    """

    version: str
    commit: str | None
    judge: str
    fingerprint: str
    kind: str | None
    model: str
    dtype: str | None
    label_tokens: tuple[int, int] | None
    prefill: str | None
    template: str | None
    head_dtype: str | None
    scoring: Scoring | None = None
    decision_server: DecisionServer | None
    rungs: tuple[JudgeOfCascade, ...] | None = None
    runtime: str | None
    default_alpha: float
    default_guarantee: Guarantee
    default_delta: float
    min_label_mass: float
    on_alarm: OnAlarm
    audit_rate: float
    limits: Limits
    caller: str = "anonymous"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceStatus:
    """Health of the service in one word, and what is wrong if it is degraded.

    Args:
        status: State of the service.
        detail: The part that is missing or not in order.
    """

    status: Literal["ok", "ready", "degraded"]
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One judged comparison of a group, by the indices of its responses.

    Args:
        a: Index of the response that is response A of the judgment.
    """

    a: int
    b: int | None
    judgment: Judgment


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonError:
    """One comparison of a group that could not be judged.

    Args:
        a: Index of the first response.
    """

    a: int
    b: int | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """The judge and the criterion of a group's comparisons."""

    judge: str
    alpha: float | None
    guarantee: Guarantee | None
    delta: float | None
    calibration: CalibrationReference | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewards:
    """The rewards of the responses to one question, in their order.

    The guarantee is about each comparison, not about a reward.

    Args:
        rewards: Mean of the points of the accepted comparisons, from -1 to 1; None without any. An
            empty response has -1, unless `empty` is `null`.
        reasons: Why a reward is None; None for other rewards.
        accepted: Number of comparisons that the reward is the mean of.
        compared: Number of comparisons of the response.
        ties: Number of other texts that equal the response and are not compared with it.
        basis: The judge, criterion and set; None if no comparison was judged.
        comparisons: The judgments, if the request asked for them; otherwise None.
    """

    rewards: tuple[float | None, ...]
    reasons: tuple[NoReward | None, ...]
    accepted: tuple[int, ...]
    compared: tuple[int, ...]
    ties: tuple[int, ...]
    errors: tuple[ComparisonError, ...]
    basis: Basis | None = None
    comparisons: tuple[Comparison, ...] | None

    @property
    def best_pair(self) -> tuple[int, int] | None:
        """Indices of a better and a worse response, for preference data; None if there are none.

        Of the accepted comparisons, it is the one whose winner has the largest reward above its
        loser's. The guarantee covers all accepted comparisons, and these are not drawn from them at
        random.

        Raises:
            ValueError: The request did not ask for `comparisons`.
        """
        if self.comparisons is None:
            raise ValueError("the rewards have no comparisons: ask for them with comparisons=True")
        best, largest = None, 0.0
        for each in self.comparisons:
            if each.b is None or each.judgment.verdict == "abstain":
                continue
            both = (each.a, each.b) if each.judgment.verdict == "A" else (each.b, each.a)
            won, lost = (self.rewards[place] for place in both)
            if won is not None and lost is not None and won - lost > largest:
                best, largest = both, won - lost
        return best


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleRewards(Rewards):
    """The rewards of a request with one group, with their cost."""

    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardsBatch:
    """The rewards or the error of each group, in the same order."""

    groups: tuple[Rewards | ItemError, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A service that can be used with a key and a rule, because it has judged one group.

    Args:
        latency_s: Seconds until the group was answered.
    """

    info: Info
    judgment: Judgment
    latency_s: float

    @property
    def warning(self) -> str | None:
        """Why no comparison will be accepted; None if some will."""
        judgment, found = self.judgment, self.judgment.calibration
        if judgment.reason not in ("infeasible", "suspended") or found is None:
            return None
        why = (
            "its audits have raised an alarm"
            if judgment.reason == "suspended"
            else f"it is infeasible with its {found.n} labeled pairs. Use a larger alpha, a better "
            "judge, or a new set of more pairs (`scope-judge sets show "
            f"{found.name}` says whether more help)"
        )
        return (
            f"no comparison is accepted at alpha {judgment.alpha:g} with the set {found.name!r}: "
            f"{why}"
        )
