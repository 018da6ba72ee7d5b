"""The errors that the project raises on purpose.

    ScopeJudgeError
    ├── RequestError        the caller can fix it
    ├── UnavailableError    the caller can try again later
    ├── DefectError         a fault of the service or its data
    └── StartupError        the service cannot start; no caller sees it

Callers can get the leaves of the first three branches, whose titles say what happened. Their
statuses are in `app.api.problems`.
"""

from typing import ClassVar


class ScopeJudgeError(Exception):
    """Root of all errors. The message is for the caller and never contains a judged text."""

    code: ClassVar[str]
    title: ClassVar[str]

    @property
    def detail(self) -> str:
        """The message: the reason and the remedy."""
        return str(self)


class RequestError(ScopeJudgeError):
    """The request is at fault, and the caller can fix it."""


class UnavailableError(ScopeJudgeError):
    """The request is valid, and trying again later may help.

    Args:
        detail: The reason.
        retry_after_s: Seconds after which the caller should try again.
    """

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class DefectError(ScopeJudgeError):
    """A fault of the service or of its data, which the caller cannot fix."""


class StartupError(ScopeJudgeError):
    """The service cannot start as configured; the message says what to change."""


class UnauthenticatedError(RequestError):
    """The request has no key, or an unknown one."""

    code = "unauthenticated"
    title = "A valid key is needed"


class ForbiddenError(RequestError):
    """The key's roles, or its calibration sets, do not cover the request."""

    code = "forbidden"
    title = "The key does not allow this"


class InvalidRequestError(RequestError):
    """A field is missing, unknown, of a wrong type or out of range.

    Args:
        detail: Description of the first fault.
        faults: All faults as (field, message), at most ten.
    """

    code = "invalid_request"
    title = "The request is not valid"

    def __init__(self, detail: str, *, faults: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.faults = faults


class InvalidComparisonError(RequestError):
    """A comparison has blank texts, or numbers of turns that do not match."""

    code = "invalid_comparison"
    title = "The comparison is not valid"


class BodyTooLargeError(RequestError):
    code = "body_too_large"
    title = "The request body is too large"


class BatchTooLargeError(RequestError):
    code = "batch_too_large"
    title = "The request has too many comparisons or responses"


class TooManyCriteriaError(RequestError):
    code = "too_many_criteria"
    title = "The batch has too many different criteria"


class PromptTooLongError(RequestError):
    """The prompt exceeds the judge's context. Prompts are never cut."""

    code = "prompt_too_long"
    title = "The prompt is longer than the judge's context"


class ControlTokenError(RequestError):
    """A text contains control tokens of the judge that cannot be escaped."""

    code = "control_tokens"
    title = "A text contains control tokens of the judge"


class RouteNotFoundError(RequestError):
    code = "not_found"
    title = "This path does not exist"


class MethodNotAllowedError(RequestError):
    code = "method_not_allowed"
    title = "This path does not support this method"

    def __init__(self, detail: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(detail)
        self.allowed = allowed


class CalibrationNotFoundError(RequestError):
    """No calibration set has this name."""

    # The only argument is the name.
    code = "calibration_not_found"
    title = "No calibration set has this name"

    def __str__(self) -> str:
        return (
            f"there is no calibration {self.args[0]!r}: GET /calibrations lists yours, POST "
            '/calibrate makes one of labeled examples, and "alpha": null judges without a guarantee'
        )


class VersionNotFoundError(RequestError):
    """The calibration set has no such version, or cannot restore it."""

    code = "version_not_found"
    title = "The calibration set has no such version"


class JudgeMismatchError(RequestError):
    """The calibration set belongs to another judge: calibrate again under a new name."""

    code = "judge_mismatch"
    title = "The calibration set belongs to another judge"


class LabelsMissingError(RequestError):
    """The threshold depends on pairs of the set that have no label."""

    code = "labels_missing"
    title = "The calibration set needs more labels"


class CascadeError(RequestError):
    """A cascade cannot do this, has no plan yet or has one already; or there is one judge."""

    code = "cascade_conflict"
    title = "The cascade does not allow this"


class AuditsIncompleteError(RequestError):
    """Audits without a label: the labeled ones may not be a random sample."""

    code = "audits_incomplete"
    title = "Audits have no label"


class BecomesInfeasibleError(RequestError):
    code = "becomes_infeasible"
    title = "An alpha in use would get no more verdicts"


class LabelsDifferError(RequestError):
    """A posted pair has another label than before; nothing was changed."""

    code = "labels_differ"
    title = "Pairs have other labels than before"


class SetFullError(RequestError):
    code = "set_full"
    title = "The calibration set is full"


class OverloadedError(UnavailableError):
    """A limit on concurrent work, bytes or connections is reached."""

    code = "overloaded"
    title = "The judge is overloaded"


class RateLimitedError(UnavailableError):
    """The key has used up its comparisons a minute."""

    code = "rate_limited"
    title = "The key has reached its limit"


class DeadlineExceededError(UnavailableError):
    code = "deadline_exceeded"
    title = "The request timed out"


class DrainingError(UnavailableError):
    """The service is shutting down. Another replica will answer."""

    code = "draining"
    title = "The service is shutting down"


class KeysUnavailableError(UnavailableError):
    """The key file cannot be read."""

    code = "keys_unavailable"
    title = "Keys cannot be checked"


class EngineUnavailableError(UnavailableError):
    code = "engine_unavailable"
    title = "The judge's engine is unavailable"


class StoreUnavailableError(UnavailableError):
    """The store does not answer, or refuses a write."""

    code = "store_unavailable"
    title = "The calibration store is unavailable"


class JudgmentFailedError(DefectError):
    """The engine's answer is not a judgment, and never counts as one."""

    code = "judgment_failed"
    title = "The judge returned no judgment"


class StoreCorruptError(DefectError):
    code = "store_corrupt"
    title = "The stored data cannot be read"


class InternalError(DefectError):
    code = "internal"
    title = "Internal error"
