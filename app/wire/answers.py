"""JSON answers about judgments and about the service."""

from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from app import __version__
from app.core.comparison import Guarantee, Judgment, Orders, Reason, Side, Verdict
from app.core.errors import ScopeJudgeError
from app.release import COMMIT
from app.service.auditing.monitor import OnAlarm
from app.service.fair_queue import CURRENT_FLOW
from app.service.judging.judge import Outcome
from app.service.services import Services
from app.wire.problems import Problem, problem_of
from app.wire.requests import BatchItem
from app.wire.words import in_words

RISK_LEVEL = (
    "Smallest alpha that accepts a judgment of this uncertainty. Like alpha, it describes all "
    "judgments that such an alpha accepts. It is not the probability that "
    "this judgment is wrong, and can be small for a pair that differs from the labelled ones."
)


class Out(BaseModel):
    """Base class of all answers."""

    # pydantic would write NaN as null, and null has its own meaning in these answers. Records
    # of core and service become answers by the names of their fields.
    model_config = ConfigDict(allow_inf_nan=False, frozen=True, from_attributes=True)


_Model = TypeVar("_Model", bound=Out)


def _out(model: type[_Model], record: object) -> _Model | None:
    """Converts a record to the answer with the same fields; None stays None."""
    return None if record is None else model.model_validate(record)


class CalibrationReferenceOut(Out):
    """The version of the calibration set that a judgment was made with."""

    name: str
    version: int
    n: int


class AuditReferenceOut(Out):
    """The audit of a judgment that was drawn at random."""

    id: str
    rate: float


class JudgmentOut(Out):
    """A verdict or an abstention; all probabilities are of response_a being preferred."""

    id: str | int | None
    verdict: Verdict
    preferred: Side | None
    reason: Reason | None
    p_fwd: float
    p_rev: float
    p_bar: float
    uncertainty: float
    confidence: float
    threshold: float | None
    alpha: float | None
    guarantee: Guarantee | None
    delta: float | None
    risk_level: float | None = Field(
        description=f"{RISK_LEVEL} Null under `pac`, without alpha, or if no alpha accepts it."
    )
    label_mass: float | None
    orders: Orders
    temperature: float | None
    calibration: CalibrationReferenceOut | None
    judge: str
    audit: AuditReferenceOut | None
    cached: bool
    bounded: bool

    @classmethod
    def of(cls, judgment: Judgment, identifier: str | int | None) -> "JudgmentOut":
        """Converts a judgment; `guarantee` is null without an alpha, which promises nothing."""
        criterion, preference = judgment.criterion, judgment.preference
        promised = criterion.alpha is not None
        return cls(
            id=identifier,
            verdict=judgment.verdict,
            preferred=preference.side,
            reason=judgment.reason,
            p_fwd=preference.p_fwd,
            p_rev=preference.p_rev,
            p_bar=preference.p_bar,
            uncertainty=preference.uncertainty,
            confidence=preference.confidence,
            threshold=judgment.threshold,
            alpha=criterion.alpha,
            guarantee=criterion.guarantee if promised else None,
            delta=criterion.delta if promised else None,
            risk_level=judgment.risk_level,
            label_mass=judgment.label_mass,
            orders=judgment.orders,
            temperature=judgment.temperature if judgment.orders == 1 else None,
            calibration=_out(CalibrationReferenceOut, judgment.calibration),
            judge=judgment.judge,
            audit=_out(AuditReferenceOut, judgment.audit),
            cached=judgment.cached,
            bounded=judgment.bounded,
        )


class RequestUsageOut(Out):
    """The work of the judge for one request; kept scores cost nothing."""

    engine_prompts: int
    prompt_tokens: int

    @classmethod
    def of_request(cls) -> "RequestUsageOut":
        """Converts the usage of the request that is being answered."""
        return cls.model_validate(CURRENT_FLOW.get().usage)


class JudgeOut(JudgmentOut):
    """A judgment, the same in words, and its cost."""

    words: str
    usage: RequestUsageOut

    @classmethod
    def of(cls, judgment: Judgment, identifier: str | int | None) -> "JudgeOut":
        """Converts the judgment of a request."""
        return cls(
            **dict(JudgmentOut.of(judgment, identifier)),
            words=in_words(judgment),
            usage=RequestUsageOut.of_request(),
        )


class ItemErrorOut(Out):
    """The error of one item, in place of its judgment."""

    id: str | int | None
    error: Problem


class JudgeBatchOut(Out):
    """One result for each comparison, in the same order."""

    results: list[JudgmentOut | ItemErrorOut]
    usage: RequestUsageOut

    @classmethod
    def of(cls, items: Sequence[BatchItem], outcomes: Sequence[Outcome]) -> "JudgeBatchOut":
        """Converts the outcomes of the batch of a request."""
        both = zip(items, outcomes, strict=True)
        return cls(
            results=[_result(item.id, outcome) for item, outcome in both],
            usage=RequestUsageOut.of_request(),
        )


def _result(identifier: str | int | None, outcome: Outcome) -> JudgmentOut | ItemErrorOut:
    if isinstance(outcome, ScopeJudgeError):
        return ItemErrorOut(id=identifier, error=problem_of(outcome))
    return JudgmentOut.of(outcome, identifier)


class LimitsOut(Out):
    """The limits of one request."""

    max_batch: int
    max_body_bytes: int
    max_prompt_tokens: int


# The fields of `InfoOut` in which a judge describes itself.
_DESCRIBED = (
    "kind",
    "model",
    "dtype",
    "label_tokens",
    "prefill",
    "template",
    "head_dtype",
    "decision_server",
)


class DecisionServerOut(Out):
    """Decision servers as the start has found them; all of it is part of the fingerprint."""

    hosts: list[str]
    answered_as: str
    dialect: str
    questions_together: int
    # Null if they are not rounded.
    decimals: int | None


# Both guarantees bound this share.
PROMISE = (
    "the share of wrong verdicts among the accepted ones, of pairs of which people prefer one side"
)


class InfoOut(Out):
    """The judge, the promise, the defaults and the limits of the service."""

    version: str
    commit: str | None
    judge: str
    fingerprint: str
    model: str
    # Null where the kind of judge has none: only chat models have labels and a prompt.
    kind: str | None
    dtype: str | None
    label_tokens: tuple[int, int] | None
    prefill: str | None
    template: str | None
    head_dtype: str | None
    decision_server: DecisionServerOut | None
    # Null where the engine does not know it.
    runtime: str | None
    alpha_bounds: str
    default_alpha: float
    default_guarantee: Guarantee
    default_delta: float
    min_label_mass: float
    on_alarm: OnAlarm
    audit_rate: float
    limits: LimitsOut

    @classmethod
    def of(cls, services: Services) -> "InfoOut":
        """Describes a running service."""
        identity, defaults = services.identity, services.defaults
        return cls(
            version=__version__,
            commit=COMMIT,
            judge=identity.name,
            fingerprint=identity.fingerprint,
            **{field: identity.described.get(field) for field in _DESCRIBED},
            runtime=identity.runtime,
            alpha_bounds=PROMISE,
            default_alpha=defaults.alpha,
            default_guarantee=defaults.guarantee,
            default_delta=defaults.delta,
            min_label_mass=services.calibrations.min_label_mass,
            on_alarm=services.monitor.on_alarm,
            audit_rate=services.auditor.rate,
            limits=LimitsOut.model_validate(services.limits),
        )


class StatusOut(Out):
    """Health of the service in one word, and what is wrong if it is degraded."""

    status: Literal["ok", "ready", "degraded"]
    detail: str | None = None
