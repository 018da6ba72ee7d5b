"""Every error the project raises on purpose.

    ScopeJudgeError
    ├── RequestError                  the caller can fix it
    │   ├── UnauthenticatedError      no key, or one that nobody has given out
    │   ├── ForbiddenError            the key may not do this
    │   ├── InvalidRequestError       a field is missing, of a wrong type or out of range
    │   ├── InvalidComparisonError    blank text, or numbers of turns that disagree
    │   ├── BodyTooLargeError         the request has too many bytes
    │   ├── BodyTooSlowError          the request's body arrives too slowly
    │   ├── BatchTooLargeError        the request has too many comparisons
    │   ├── PromptTooLongError        the judge's context is shorter than the prompt
    │   ├── ControlTokenError         a text holds control tokens that cannot be neutralised
    │   ├── RouteNotFoundError        no such path
    │   ├── MethodNotAllowedError     no such method on this path
    │   ├── CalibrationNotFoundError  no calibration set of this name
    │   ├── VersionNotFoundError      the set has no such version, or cannot go back to it
    │   └── JudgeMismatchError        the calibration set belongs to another judge
    ├── UnavailableError              try again later
    │   ├── OverloadedError           more work is waiting than may wait
    │   ├── DeadlineExceededError     the answer was not there in time; the work was stopped
    │   ├── DrainingError             the service is being stopped
    │   ├── KeysUnavailableError      the file of keys cannot be read
    │   ├── EngineUnavailableError    the engine does not answer
    │   └── StoreUnavailableError     the calibration store does not answer
    ├── DefectError                   ours to fix
    │   ├── JudgmentFailedError       the engine answered with something that is no judgment
    │   ├── StoreCorruptError         the store holds something this version did not write
    │   └── InternalError             anything that nobody foresaw
    └── StartupError                  the service refuses to start; never reaches a caller

The leaves of the first three are what a caller can get; `app.wire.problems` gives each its status.
"""

from typing import ClassVar


class ScopeJudgeError(Exception):
    """Root of the tree. The message is for the caller and never holds a judged text."""

    code: ClassVar[str]
    title: ClassVar[str]

    @property
    def detail(self) -> str:
        """What happened and what to do about it."""
        return str(self)


class RequestError(ScopeJudgeError):
    """The caller can fix it."""


class UnavailableError(ScopeJudgeError):
    """Nothing is wrong with the request; trying later may help.

    Args:
        detail: What happened.
        retry_after_s: When it is worth trying again, in seconds.
    """

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class DefectError(ScopeJudgeError):
    """Ours to fix."""


class StartupError(ScopeJudgeError):
    """The service cannot start as configured; the message says what to change."""


class UnauthenticatedError(RequestError):
    """The request has no key, or one that is not in the file of keys."""

    code = "unauthenticated"
    title = "A valid key is needed"


class ForbiddenError(RequestError):
    """The key's roles, or its calibration sets, do not cover the request."""

    code = "forbidden"
    title = "The key may not do this"


class InvalidRequestError(RequestError):
    """A field is missing, unknown, of a wrong type or out of range.

    Args:
        detail: The first fault, in words.
        faults: All of them as (field, message), at most ten.
    """

    code = "invalid_request"
    title = "The request is not valid"

    def __init__(self, detail: str, *, faults: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.faults = faults


class InvalidComparisonError(RequestError):
    """A comparison cannot be judged as it is written."""

    code = "invalid_comparison"
    title = "The comparison is not valid"


class BodyTooLargeError(RequestError):
    """The request's body is over the limit."""

    code = "body_too_large"
    title = "The request body is too large"


class BodyTooSlowError(RequestError):
    """The request's body did not arrive at the least rate."""

    code = "body_too_slow"
    title = "The request body arrives too slowly"


class BatchTooLargeError(RequestError):
    """The request holds more comparisons than one request may."""

    code = "batch_too_large"
    title = "The batch holds too many comparisons"


class PromptTooLongError(RequestError):
    """The prompt does not fit the judge's context; it is never cut."""

    code = "prompt_too_long"
    title = "The prompt is longer than the judge's context"


class ControlTokenError(RequestError):
    """A text holds control tokens of the judge that cannot be made plain text."""

    code = "control_tokens"
    title = "A text holds control tokens of the judge"


class RouteNotFoundError(RequestError):
    """The path names nothing."""

    code = "not_found"
    title = "There is nothing at this path"


class MethodNotAllowedError(RequestError):
    """The path does not take this method.

    Args:
        detail: What happened.
        allowed: The methods that it takes.
    """

    code = "method_not_allowed"
    title = "This path does not take this method"

    def __init__(self, detail: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(detail)
        self.allowed = allowed


class CalibrationNotFoundError(RequestError):
    """No calibration set has this name."""

    code = "calibration_not_found"
    title = "There is no such calibration"


class VersionNotFoundError(RequestError):
    """The calibration set has no such version, or what it was cannot be told any more."""

    code = "version_not_found"
    title = "There is no such version"


class JudgeMismatchError(RequestError):
    """The calibration set was made with another judge, prompt or label tokens."""

    code = "judge_mismatch"
    title = "The calibration belongs to another judge"


class OverloadedError(UnavailableError):
    """More work is waiting than may wait."""

    code = "overloaded"
    title = "The judge is overloaded"


class DeadlineExceededError(UnavailableError):
    """The answer was not there in time; the work on it was stopped."""

    code = "deadline_exceeded"
    title = "There was no answer in time"


class DrainingError(UnavailableError):
    """The service is being stopped; another replica, or a later one, will answer."""

    code = "draining"
    title = "The service is being stopped"


class KeysUnavailableError(UnavailableError):
    """The file of keys cannot be read, so nobody is let in."""

    code = "keys_unavailable"
    title = "Keys cannot be checked"


class EngineUnavailableError(UnavailableError):
    """The engine is not there, or does not answer."""

    code = "engine_unavailable"
    title = "The judge's engine is unavailable"


class StoreUnavailableError(UnavailableError):
    """The calibration store is not there, or refuses to work."""

    code = "store_unavailable"
    title = "The calibration store is unavailable"


class JudgmentFailedError(DefectError):
    """The engine's answer is not a judgment; it is never counted as one."""

    code = "judgment_failed"
    title = "The judge gave no judgment"


class StoreCorruptError(DefectError):
    """A stored calibration set cannot be read as one."""

    code = "store_corrupt"
    title = "The stored calibration cannot be read"


class InternalError(DefectError):
    """Anything that nobody foresaw; the log has the place, without texts."""

    code = "internal"
    title = "Internal error"
