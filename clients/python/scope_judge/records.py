"""The answers of the service: declared here, built by the service and read by the client.

The descriptions of the fields are those of the OpenAPI document. The client ignores fields that a
later service adds.
"""

from dataclasses import dataclass
from typing import Literal

from scope_judge.errors import ScopeError, class_of

Verdict = Literal["A", "B", "abstain"]
Side = Literal["A", "B"]
Label = Literal["A", "B", "tie"]
Guarantee = Literal["marginal", "pac"]
Status = Literal["open", "labelled", "closed", "expired"]
Identifier = str | int


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationReference:
    """The version of the calibration set that a judgment was made with.

    Args:
        name: Name of the calibration set.
        version: Version that the judgment used.
        n: Number of examples in the set, with and without labels.
    """

    name: str
    version: int
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestUsage:
    """The work of the judge for one request; kept scores cost nothing.

    Args:
        engine_prompts: Prompts that the judge read for this request; 0 if all its scores were kept.
        prompt_tokens: Tokens of these prompts; 0 for a judge that does not count them.
    """

    engine_prompts: int
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReference:
    """The audit of a judgment, drawn at random.

    Args:
        id: Id of the audit, for its label.
        rate: Probability with which the comparison was drawn.
    """

    id: str
    rate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgment:
    """A verdict or an abstention; all probabilities are of response A being preferred.

    An abstention is not a verdict: `preferred` is then only a hint, without any guarantee.

    Args:
        id: Your text or number for the pair; the answer repeats it.
        verdict: The accepted verdict, or `abstain`.
        preferred: The response that the judge prefers, even if it abstains; None if it has no
            preference.
        reason: Reason of an abstention: `off_task`, `no_preference`, `suspended`, `infeasible` or
            `uncertain`; None for a verdict.
        p_fwd: Probability that response A is better, with response A shown first.
        p_rev: The same probability, with response B shown first.
        p_bar: Average of the two.
        uncertainty: Entropy of the average preference, in nats, from 0 to ln 2.
        confidence: The larger of `p_bar` and 1 - `p_bar`.
        threshold: Largest accepted uncertainty in nats; None if nothing is accepted or without
            alpha.
        alpha: Largest share of wrong verdicts among accepted ones; None if the judgment promises
            nothing.
        guarantee: `marginal` or `pac`; None without alpha.
        delta: Probability that `pac` fails; None with `marginal`.
        risk_level: Smallest alpha that accepts a judgment of this uncertainty. Like alpha, it
            describes all judgments that such an alpha accepts. It is not the probability that this
            judgment is wrong, and can be small for a pair that differs from the labeled ones. None
            under `pac`, without alpha, or if no alpha accepts it.
        label_mass: Share of the vocabulary's probability on the two label tokens, in the order
            where it is smaller; None if the judge does not report it.
        calibration: The calibration that the judgment rests on; None without alpha.
        judge: Name of the judge.
        audit: The audit, if this judgment was drawn at random for one; else None.
        orders: Number of orders of the responses that the judge has seen: 2, or 1 for a judge that
            sees each response alone.
        temperature: Number by which the gap of a judge that sees each response alone was divided,
            fitted on the calibration set; 1 without alpha; None for other judges.
        cached: Whether the score is that of an earlier call (`SCOPE_SCORE_CACHE`).
        bounded: Whether a probability of the judge was exactly 0 or 1. The service then uses half a
            step of its rounding, so the pair may be more certain than it shows.
    """

    id: Identifier | None
    verdict: Verdict
    preferred: Side | None
    reason: str | None
    p_fwd: float
    p_rev: float
    p_bar: float
    uncertainty: float
    confidence: float
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

    @property
    def accepted(self) -> bool:
        """Whether there is a verdict, and no abstention."""
        return self.verdict != "abstain"


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleJudgment(Judgment):
    """The judgment of a request with one pair, in words and with its cost.

    Args:
        words: The judgment in a sentence, with the reason of an abstention.
        usage: The work of the judge for this request.
    """

    words: str
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One invalid field of a request.

    Args:
        field: Name of the field.
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
        detail: What is wrong with this request, and what to do.
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
    """The error of one item of a batch, in place of its judgment; it is never a verdict.

    Args:
        id: Your text or number for the pair; the answer repeats it.
        error: The problem.
    """

    id: Identifier | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgmentBatch:
    """One result for each comparison, in the same order.

    Args:
        results: One judgment or error for each comparison, in the same order.
        usage: The work of the judge for this request.
    """

    results: tuple[Judgment | ItemError, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Threshold:
    """The threshold of one alpha and guarantee, with coverage and risk on the set's examples.

    `labels_missing` is true if it depends on labels that the set does not have yet. `tie_share` is
    the share of ties among the accepted pairs with a label, which the promise leaves out, and
    `tie_interval` its 95% interval.
    """

    alpha: float
    guarantee: str
    delta: float | None
    threshold: float | None
    coverage: float
    empirical_risk: float | None
    feasible: bool
    labels_missing: bool = False
    tie_share: float | None = None
    tie_interval: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """One version of a calibration set."""

    name: str
    version: int
    n: int
    judge: str
    fingerprint: str
    accuracy: float | None
    thresholds: tuple[Threshold, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleError:
    """The error of an example that was not added, with its index among the examples and its id."""

    index: int
    id: Identifier | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """The effect of a change of a set on one criterion in use.

    Args:
        alpha: Largest share of wrong verdicts among the accepted ones.
        guarantee: "marginal" or "pac".
        delta: Probability with which "pac" may fail; None with "marginal".
        before: The threshold before the change.
        after: The threshold after it.
        becomes_infeasible: Whether it has verdicts before the change but not after it.
        more_labels: Number of further labels that make it feasible after the change if the error
            rates stay the same; None if no number does.
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    before: Threshold
    after: Threshold
    becomes_infeasible: bool
    more_labels: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedAlarm:
    """An alarm of the audits that was ended.

    Args:
        alpha: Alpha of its criterion.
        guarantee: Guarantee of its criterion.
        delta: Delta of its criterion; None with "marginal".
        rang_at: Time at which it was raised, in ISO 8601, UTC.
    """

    alpha: float
    guarantee: str
    delta: float | None
    rang_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationReport(Calibration):
    """The calibration set after examples were added, with their counts and errors.

    Args:
        added: Number of new examples.
        updated: Number of examples that the set had already.
        ties: Number of examples without a preferred side; the set leaves them out.
        removed: Number of examples removed from the set.
        failed: Number of examples that were not added.
        errors: Their errors.
        dry_run: Whether nothing has changed, and the set is described as it would be.
        effects: The effect on each criterion in use; None without `dry_run` and `replace`.
        ends_alarms: The active alarms that the change ends, likewise.
        note: The effects in a sentence, likewise.
    """

    added: int
    updated: int
    ties: int
    removed: int
    failed: int
    errors: tuple[ExampleError, ...]
    dry_run: bool = False
    effects: tuple[Effect, ...] | None = None
    ends_alarms: tuple[EndedAlarm, ...] | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AbsorbReport(Calibration):
    """The calibration set after labeled audits became its examples, with their counts.

    Args:
        added: Number of new examples.
        updated: Number of examples that the set had already.
        ties: Number of audits without a preferred side; the set leaves them out.
        removed: Number of examples removed from the set.
        replaced: Whether the audits replace all examples, as after an alarm.
        unlabelled_audits: Number of audits that were left out because they were closed or have
            expired.
        waiting: Number of labels of later audits, which wait for an open one.
        other_judge: Number of audits that were left out because another judge made them.
        rates: Probabilities with which the audits were drawn. With more than one, a part of the
            time counts more than another.
        dry_run: Whether nothing has changed, and the set is described as it would be.
        effects: The effect on each criterion in use; none from 0.2.0 and earlier.
        note: The same in a sentence.
        ends_alarms: The active alarms that the change ends.
    """

    added: int
    updated: int
    ties: int
    removed: int
    replaced: bool
    unlabelled_audits: int
    waiting: int
    other_judge: int
    rates: tuple[float, ...]
    dry_run: bool = False
    effects: tuple[Effect, ...] = ()
    note: str = ""
    ends_alarms: tuple[EndedAlarm, ...] = ()


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
    """The texts of a pair: a response is a text, or one text for each turn of the user."""

    question: str | tuple[Turn, ...]
    response_a: str | tuple[str, ...]
    response_b: str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """One comparison that was drawn for an audit; times are in ISO 8601, UTC.

    Args:
        id: Id of its first judgment.
        calibration: The calibration set that was used.
        status: "open", "labelled", "closed" or "expired".
        rate: Probability with which the comparison was drawn.
        drawn_at: Time of its first judgment.
        expires_at: Time until which it takes its first label.
        label: Its label, in the order of its first judgment; "none" if it was closed without one.
        labelled_at: Time of its first label.
        labelled_by: Name of the key that sent its label, or closed it.
        drawn_by: Name of the key that asked for its first judgment.
        texts: Its texts in the order of `id`, from `ScopeClient.audit_texts`; else None.
    """

    id: str
    calibration: str
    status: str
    rate: float
    drawn_at: str
    expires_at: str
    label: Label | Literal["none"] | None
    labelled_at: str | None
    labelled_by: str | None
    drawn_by: str
    texts: PairTexts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Some audits, and the `after` of the next page; None for the last page."""

    audits: tuple[Audit, ...]
    next_after: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEvent:
    """One entry of the trail of a set's audits.

    Args:
        event: "closed", "label_changed", "alarm", "alarm_ended" (by a new version) or "resumed" (by
            a person).
        at: Time of the event in ISO 8601, UTC.
        by: Name of the key that sent the label, made the version or resumed.
        reason: The reason for closing or resuming; None for the others.
        id: Id of the audit; None for alarms, as are `before` and `after`.
        before: The label that was replaced; None if the audit had none.
        after: The label since then; "none" if the audit was closed.
        alpha: Alpha of the criterion; None but for alarms and their ends, as are the following.
        guarantee: Guarantee of the criterion.
        delta: Delta of the criterion; None with "marginal".
        version: The version that rang, or the current version when the alarm ended.
        errors: Errors that the labels showed when the alarm rang.
        audited: Labels that counted then.
        suspended: Whether judgments under the criterion abstained from then on.
        first_judged_at: Time of the first judgment that led to the alarm.
        last_judged_at: Time of the last one, likewise.
        audits: Number of audits since the alarm that replace all examples by an absorption; None
            for the others, and if it is above 100,000.
    """

    event: str
    at: str
    by: str
    reason: str | None
    id: str | None
    before: Label | Literal["none"] | None
    after: Label | Literal["none"] | None
    alpha: float | None
    guarantee: str | None
    delta: float | None
    version: int | None
    errors: int | None
    audited: int | None
    suspended: bool | None
    first_judged_at: str | None = None
    last_judged_at: str | None = None
    audits: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditTrail:
    """Entries of a trail, newest first, and the `before` of the next page; None for the last."""

    name: str
    entries: tuple[AuditEvent, ...]
    next_before: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The alarms of a set that were ended; none if there was none."""

    name: str
    resumed: tuple[EndedAlarm, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierLabel:
    """A pair that somebody else has labeled first."""

    id: str
    labeler: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLabels:
    """The effect of labels.

    Args:
        labelled: Number of audits that got their first label.
        updated: Number of labels that replaced another one.
        unchanged: Number of labels that the audits had already.
        unknown: Number of ids without an audit.
        expired: Number of audits that were not labeled in time, and take no more labels.
        unknown_ids: Ids without an audit.
        expired_ids: Ids of audits that take no more labels.
        closed: Number of audits that were closed without a label.
        earlier: Audits that somebody else has labeled first, and who did: that label stays.
    """

    labelled: int
    updated: int
    unchanged: int
    unknown: int
    expired: int
    unknown_ids: tuple[str, ...]
    expired_ids: tuple[str, ...]
    closed: int = 0
    earlier: tuple[EarlierLabel, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One point of the risk-coverage curve."""

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Infeasible:
    """An alpha at which nothing is accepted, and what would make it feasible.

    Acting on it is a choice after seeing the labels; `after_looking` says what then holds.
    """

    alpha: float
    guarantee: str
    delta: float | None
    smallest_feasible_alpha: float | None
    more_examples: int | None
    after_looking: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Recent judgments of the process that answers, compared with the labeled pairs."""

    judgments: int
    abstentions: float | None
    expected_abstentions: float | None
    uncertainty: float
    expected_uncertainty: float
    drifted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationDetail(Calibration):
    """A calibration set with its quality and its risk-coverage curve.

    Args:
        labelled: Number of its pairs with a preferred side.
        unlabelled: Number of its pairs without a label.
        pool_ties: Number of its pairs that people found equal, in a pool or not.
        questions: Number of different questions.
        counted: Number of the pairs that "pac" counts.
        temperature: Number by which the judge's gaps are divided; None for a judge that sees both
            orders of the responses.
        tie_rate: Share of its pairs that people found equal; None while pairs have no label.
    """

    auroc: float | None
    expected_calibration_error: float | None
    position_flips: float | None
    mean_label_mass: float | None
    off_task: int
    infeasible: tuple[Infeasible, ...]
    curve: tuple[CurvePoint, ...]
    traffic: Traffic | None
    requested: tuple[Threshold, ...] = ()
    labelled: int = 0
    unlabelled: int = 0
    pool_ties: int = 0
    questions: int = 0
    counted: int = 0
    temperature: float | None = None
    tie_rate: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of one request.

    Args:
        max_batch: Most comparisons in one request.
        max_body_bytes: Most bytes of a request body.
        max_prompt_tokens: Most tokens of a prompt.

    Raises:
        ValueError: A limit on comparisons or bytes is below 1. The message is its name.
    """

    max_batch: int
    max_body_bytes: int
    max_prompt_tokens: int

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(name)


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
class Info:
    """The judge, the promise, the defaults and the limits of the service.

    Args:
        version: Version of scope-judge.
        commit: Commit of scope-judge; None if unknown.
        judge: Name of the judge.
        fingerprint: Digest of model, prompt, prefill and label tokens. A calibration serves one
            fingerprint only.
        kind: Kind of the judge: `chat model` answers with one of two labels, `reward model` gives
            each response a number, `decision server` gives each of two options a probability; None
            if unknown.
        model: Hugging Face id or folder of the model.
        dtype: Number format in which the judge computes; None for kinds of judges without one.
        label_tokens: Token ids of the labels A and B; None for kinds of judges without one.
        prefill: Beginning of the judge's answer; None for kinds of judges without one.
        template: Digest of the prompt template, or of a reward model's chat template; part of the
            fingerprint, and equal for judges that share the template.
        head_dtype: Number format in which the judge computes its logits; None if unknown. Formats
            other than `float32` make scores tie.
        decision_server: The decision servers as detected at the start; None for other kinds of
            judges.
        runtime: The part of the installation that decides how scores are rounded: vLLM's version,
            the GPU's compute capability (or the CPU), and how many GPUs share the judge; None if
            unknown. It is not part of the fingerprint.
        alpha_bounds: The share that alpha bounds, in words. The promise does not cover ties.
        default_alpha: Value of `SCOPE_DEFAULT_ALPHA`.
        default_guarantee: Value of `SCOPE_DEFAULT_GUARANTEE`.
        default_delta: Value of `SCOPE_DEFAULT_DELTA`.
        min_label_mass: Value of `SCOPE_MIN_LABEL_MASS`.
        on_alarm: Value of `SCOPE_ON_ALARM`.
        audit_rate: Value of `SCOPE_AUDIT_RATE`.
        limits: Limits of one request.
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
    decision_server: DecisionServer | None
    runtime: str | None
    alpha_bounds: str
    default_alpha: float
    default_guarantee: Guarantee
    default_delta: float
    min_label_mass: float
    on_alarm: Literal["report", "abstain"]
    audit_rate: float
    limits: Limits


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
        b: Index of the other response; None for the reference.
        judgment: The judgment.
    """

    a: int
    b: int | None
    judgment: Judgment


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonError:
    """One comparison of a group that could not be judged.

    Args:
        a: Index of the first response.
        b: Index of the other response; None for the reference.
        error: The problem.
    """

    a: int
    b: int | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewards:
    """The rewards of the responses to one question, in their order.

    The guarantee is about each comparison, not about a reward.

    Args:
        rewards: Mean of the points of the accepted comparisons, from -1 to 1; None without any. An
            empty response has -1, unless `empty` is `null`.
        reasons: Why a reward is None: `suspended`, `infeasible`, `abstained`, `failed`, `tied`,
            `empty` or `unopposed`; None for other rewards.
        accepted: Number of comparisons that the reward is the mean of.
        compared: Number of comparisons of the response.
        ties: Number of other texts that equal the response and are not compared with it.
        errors: The comparisons that could not be judged.
        comparisons: The judgments, if the request asked for them; otherwise None.
    """

    rewards: tuple[float | None, ...]
    reasons: tuple[str | None, ...]
    accepted: tuple[int, ...]
    compared: tuple[int, ...]
    ties: tuple[int, ...]
    errors: tuple[ComparisonError, ...]
    comparisons: tuple[Comparison, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleRewards(Rewards):
    """The rewards of a request with one group, with their cost.

    Args:
        usage: The work of the judge for this request.
    """

    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupError:
    """The error of one group, in place of its rewards.

    Args:
        error: The problem.
    """

    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardsBatch:
    """The rewards or the error of each group, in the same order.

    Args:
        groups: The rewards of each group, or its error.
        usage: The work of the judge for this request.
    """

    groups: tuple[Rewards | GroupError, ...]
    usage: RequestUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A service that can be used with a key and a rule, because it has judged one group.

    Args:
        info: The judge, the defaults and the limits of the service.
        judgment: The judgment of the group's two responses.
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
            else f"its {found.n} labeled pairs cannot show it"
        )
        return (
            f"no comparison is accepted at alpha {judgment.alpha:g} with the set {found.name!r}: "
            f"{why}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolReport:
    """A calibration set after pairs without labels were added, with their counts and errors.

    `digests` has the digest of each pair, in order; None for a pair that failed.
    """

    name: str
    version: int
    n: int
    labelled: int
    unlabelled: int
    pool_ties: int
    added: int
    known: int
    failed: int
    digests: tuple[str | None, ...]
    errors: tuple[ExampleError, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NextLabels:
    """The pairs to label next for one alpha and delta under "pac", by their digests."""

    name: str
    version: int
    alpha: float
    delta: float
    n: int
    labelled: int
    needed: int
    complete: bool
    threshold: float | None
    feasible: bool
    digests: tuple[str, ...]
