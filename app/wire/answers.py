"""JSON answers about judgments and about the service."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.core.comparison import Guarantee, Judgment, Reason, Side, Verdict
from app.core.errors import ScopeJudgeError
from app.service.auditing.monitor import OnAlarm
from app.service.judging.batches import BatchItem, Outcome
from app.service.services import Services
from app.wire.problems import Problem, problem_of

RISK_LEVEL = (
    "Smallest alpha that accepts a judgment of this uncertainty. Like alpha, it is a statement "
    "about a group of judgments, those that such an alpha accepts. It is not the probability that "
    "this judgment is wrong, and can be small for a pair unlike the labelled ones."
)


class Out(BaseModel):
    """Base class of all answers."""

    # pydantic would write NaN as null, and null has a meaning of its own in these answers.
    model_config = ConfigDict(allow_inf_nan=False, frozen=True)


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
    label_mass: float
    calibration: CalibrationReferenceOut | None
    judge: str
    audit: AuditReferenceOut | None

    @classmethod
    def of(cls, judgment: Judgment, identifier: str | int | None) -> "JudgmentOut":
        """Converts a judgment; `guarantee` is null without an alpha, which promises nothing."""
        criterion, reference = judgment.criterion, judgment.calibration
        promised = criterion.alpha is not None
        return cls(
            id=identifier,
            verdict=judgment.verdict,
            preferred=judgment.preferred,
            reason=judgment.reason,
            p_fwd=judgment.p_fwd,
            p_rev=judgment.p_rev,
            p_bar=judgment.p_bar,
            uncertainty=judgment.uncertainty,
            confidence=judgment.confidence,
            threshold=judgment.threshold,
            alpha=criterion.alpha,
            guarantee=criterion.guarantee if promised else None,
            delta=criterion.delta if promised else None,
            risk_level=judgment.risk_level,
            label_mass=judgment.label_mass,
            calibration=None
            if reference is None
            else CalibrationReferenceOut(
                name=reference.name, version=reference.version, n=reference.n
            ),
            judge=judgment.judge,
            audit=None
            if judgment.audit is None
            else AuditReferenceOut(id=judgment.audit.id, rate=judgment.audit.rate),
        )


class ItemErrorOut(Out):
    """The error of one item, in place of its judgment."""

    id: str | int | None
    error: Problem


class JudgeBatchOut(Out):
    """One result for each comparison, in the same order."""

    results: list[JudgmentOut | ItemErrorOut]

    @classmethod
    def of(cls, items: Sequence[BatchItem], outcomes: Sequence[Outcome]) -> "JudgeBatchOut":
        """Converts the outcomes of a batch."""
        both = zip(items, outcomes, strict=True)
        return cls(results=[_result(item.id, outcome) for item, outcome in both])


def _result(identifier: str | int | None, outcome: Outcome) -> JudgmentOut | ItemErrorOut:
    if isinstance(outcome, ScopeJudgeError):
        return ItemErrorOut(id=identifier, error=problem_of(outcome))
    return JudgmentOut.of(outcome, identifier)


class LimitsOut(Out):
    """The limits of one request."""

    max_batch: int
    max_body_bytes: int
    max_prompt_tokens: int


class InfoOut(Out):
    """The judge, the defaults and the limits of the service."""

    version: str
    judge: str
    fingerprint: str
    model: str
    dtype: str
    label_tokens: tuple[int, int]
    prefill: str
    template: str
    default_alpha: float
    default_guarantee: Guarantee
    default_delta: float
    min_label_mass: float
    on_alarm: OnAlarm
    audit_rate: float
    limits: LimitsOut

    @classmethod
    def of(cls, services: Services, version: str) -> "InfoOut":
        """Describes a running service."""
        identity, limits = services.identity, services.limits
        defaults = services.defaults
        return cls(
            version=version,
            judge=services.judge.name,
            fingerprint=services.judge.fingerprint,
            model=identity.model,
            dtype=identity.dtype,
            label_tokens=identity.label_tokens,
            prefill=identity.prefill,
            template=identity.template,
            default_alpha=defaults.alpha,
            default_guarantee=defaults.guarantee,
            default_delta=defaults.delta,
            min_label_mass=services.calibrations.min_label_mass,
            on_alarm=services.monitor.on_alarm,
            audit_rate=services.auditor.rate,
            limits=LimitsOut(
                max_batch=limits.max_batch,
                max_body_bytes=limits.max_body_bytes,
                max_prompt_tokens=limits.max_prompt_tokens,
            ),
        )


class StatusOut(Out):
    """Health of the service in one word, and what is wrong if it is degraded."""

    status: Literal["ok", "ready", "degraded"]
    detail: str | None = None
