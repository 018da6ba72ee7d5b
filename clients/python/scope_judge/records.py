"""The answers of the service as frozen dataclasses.

Fields that a later service adds are ignored.
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
    """The version of the calibration set that a judgment was made with."""

    name: str
    version: int
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestUsage:
    """The work of the judge for one request.

    Args:
        engine_prompts: Number of prompts that the judge read; 0 if it had kept all scores.
        prompt_tokens: Number of their tokens; 0 for a judge that does not count them.
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
        id: The id of the pair.
        verdict: "A", "B" or "abstain".
        preferred: The judge's side, also where it abstains; None without a preference.
        reason: The reason of an abstention, such as "uncertain", "infeasible" or "suspended".
        p_fwd: Probability with response A shown first.
        p_rev: Probability with response B shown first.
        p_bar: Mean of both.
        uncertainty: Entropy of `p_bar`, in nats.
        confidence: Probability of the preferred side.
        threshold: Largest uncertainty that is accepted; None if alpha is infeasible or null.
        alpha: Largest share of wrong verdicts among the accepted ones; None for no guarantee.
        guarantee: "marginal" or "pac"; None without an alpha.
        delta: Probability that a "pac" guarantee fails.
        risk_level: Smallest alpha at which this judgment would be accepted; None if there is none.
        label_mass: Probability that the judge gives to the two labels together; None for a judge
            without labels.
        calibration: The calibration set that was used.
        judge: Name of the judge.
        audit: The audit of this judgment, if it was drawn at random for one; else None.
        orders: Number of orders of the responses that the judge has seen: 1 if it sees each
            response alone. Services of earlier releases do not say it, and their judges see 2.
        temperature: Number by which the judge's gap was divided, fitted on the calibration set;
            None for a judge that sees both orders.
        cached: Whether the service had kept the score of an earlier call.
        bounded: Whether a probability of the judge was 0 or 1, and half a step of its rounding
            stands for it.
        words: The judgment in a sentence, with the reason of an abstention; None for a pair of
            several, and from a service of an earlier release.
        usage: The work of the judge; None for a pair of several, which have theirs together, and
            from a service of an earlier release.
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
    guarantee: str | None
    delta: float | None
    risk_level: float | None
    label_mass: float | None
    calibration: CalibrationReference | None
    judge: str
    audit: AuditReference | None = None
    orders: int = 2
    temperature: float | None = None
    cached: bool = False
    bounded: bool = False
    words: str | None = None
    usage: RequestUsage | None = None

    @property
    def accepted(self) -> bool:
        """Whether there is a verdict, and no abstention."""
        return self.verdict != "abstain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One invalid field of a request."""

    field: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """An error of the service: `code` is for programs, `detail` for people."""

    code: str
    detail: str
    status: int
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
class Threshold:
    """The threshold of one alpha and guarantee, with coverage and risk on the set's examples.

    `labels_missing` is true if it depends on labels that the set does not have yet.
    """

    alpha: float
    guarantee: str
    delta: float | None
    threshold: float | None
    coverage: float
    empirical_risk: float | None
    feasible: bool
    labels_missing: bool = False


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
    """The calibration set after labelled audits became its examples, with their counts.

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


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Some audits, and the `after` of the next page; None for the last page."""

    audits: tuple[Audit, ...]
    next_after: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One message of a conversation, by its author ("user", "assistant" or "system")."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTexts:
    """The texts of a pair: a response is a text, or one text for each turn of the user."""

    question: str | tuple[Turn, ...]
    response_a: str | tuple[str, ...]
    response_b: str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditTexts:
    """One open audit with the texts that the service keeps.

    Args:
        id: Its id, in the order of these responses, for `ScopeClient.label_audits`.
        calibration: The calibration set that was used.
        drawn_at: Time of its first judgment in ISO 8601, UTC.
        texts: The texts; None if the service has none.
    """

    id: str
    calibration: str
    drawn_at: str
    texts: PairTexts | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditTextsPage:
    """Some open audits with their texts, and the `after` of the next page; None for the last page.

    `keeps_texts` says whether the service keeps the texts of new draws.
    """

    audits: tuple[AuditTexts, ...]
    keeps_texts: bool
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
class AuditLabels:
    """The effect of labels.

    Args:
        labelled: Number of audits that got their first label.
        updated: Number of labels that replaced another one.
        unchanged: Number of labels that the audits had already.
        unknown: Number of ids without an audit.
        expired: Number of audits that were not labelled in time, and take no more labels.
        unknown_ids: Ids without an audit.
        expired_ids: Ids of audits that take no more labels.
        closed: Number of audits that were closed without a label.
    """

    labelled: int
    updated: int
    unchanged: int
    unknown: int
    expired: int
    unknown_ids: tuple[str, ...]
    expired_ids: tuple[str, ...]
    closed: int = 0


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
    """Recent judgments of the process that answers, compared with the labelled pairs."""

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
class Info:
    """The judge, the defaults and the limits of the service.

    `dtype` and `prefill` are None for a judge that has none. `kind` is "chat model" or "reward
    model"; None if the service does not say it.
    """

    version: str
    judge: str
    fingerprint: str
    model: str
    dtype: str | None
    prefill: str | None
    default_alpha: float
    default_guarantee: str
    default_delta: float
    min_label_mass: float
    limits: Limits
    audit_rate: float = 0.0
    commit: str | None = None
    kind: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One judged comparison of a group, by the indices of its responses.

    Args:
        a: Index of the first response.
        b: Index of the second response; None for the reference.
        judgment: The judgment.
    """

    a: int
    b: int | None
    judgment: Judgment


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonError:
    """One comparison of a group that could not be judged; `b` is None for the reference."""

    a: int
    b: int | None
    error: Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRewards:
    """The rewards of the responses to one question, in their order.

    The guarantee is about each comparison, not about a reward.

    Args:
        rewards: Mean of the points of a response's accepted comparisons; None if there are none.
            An empty response has -1, unless `empty` is "null".
        reasons: Why there is no reward, such as "abstained" or "failed"; None if there is one.
        accepted: Number of comparisons that count in the reward.
        compared: Number of comparisons.
        ties: Number of other responses with an equal text, which are not compared.
        errors: The comparisons that could not be judged.
        comparisons: The judged comparisons, if they were asked for.
    """

    rewards: tuple[float | None, ...]
    reasons: tuple[str | None, ...]
    accepted: tuple[int, ...]
    compared: tuple[int, ...]
    ties: tuple[int, ...]
    errors: tuple[ComparisonError, ...]
    comparisons: tuple[Comparison, ...] | None


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
            else f"its {found.n} labelled pairs cannot show it"
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
