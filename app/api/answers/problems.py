"""Errors as RFC 9457 problems; STATUS is the only table of HTTP statuses."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.core import errors
from app.core.errors import InvalidRequestError, ScopeJudgeError
from scope_judge.records import Fault
from scope_judge.records import Problem as Problem

STATUS: dict[type[ScopeJudgeError], int] = {
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.InvalidRequestError: 422,
    errors.InvalidComparisonError: 422,
    errors.BodyTooLargeError: 413,
    errors.BatchTooLargeError: 413,
    errors.TooManyCriteriaError: 422,
    errors.PromptTooLongError: 413,
    errors.ControlTokenError: 422,
    errors.RouteNotFoundError: 404,
    errors.MethodNotAllowedError: 405,
    errors.CalibrationNotFoundError: 404,
    errors.VersionNotFoundError: 404,
    errors.JudgeMismatchError: 409,
    errors.LabelsMissingError: 409,
    errors.CascadeError: 409,
    errors.AuditsIncompleteError: 409,
    errors.BecomesInfeasibleError: 409,
    errors.SetFullError: 409,
    errors.LabelChangesError: 409,
    errors.OverloadedError: 429,
    errors.RateLimitedError: 429,
    errors.DeadlineExceededError: 504,
    errors.DrainingError: 503,
    errors.KeysUnavailableError: 503,
    errors.EngineUnavailableError: 503,
    errors.StoreUnavailableError: 503,
    errors.JudgmentFailedError: 502,
    errors.StoreCorruptError: 500,
    errors.InternalError: 500,
}

_MOST_FAULTS = 10


def problem_of(error: ScopeJudgeError) -> Problem:
    """Converts an error."""
    faults = error.faults if isinstance(error, InvalidRequestError) else ()
    return Problem(
        type=f"urn:scope-judge:problem:{error.code}",
        title=error.title,
        status=STATUS[type(error)],
        detail=error.detail,
        code=error.code,
        errors=tuple(Fault(field=field, message=message) for field, message in faults) or None,
    )


def without_none(problem: Problem) -> dict[str, Any]:
    """The fields of a problem as JSON has them, without those that are None."""
    return {name: value for name, value in asdict(problem).items() if value is not None}


def invalid_request(
    faults: Sequence[Any], *, content_type: str | None = None
) -> InvalidRequestError:
    """Converts pydantic's errors, without the input.

    FastAPI's own answer repeats the input once for every error.

    Args:
        faults: pydantic's list of errors.
        content_type: Content type of the request; None if the errors are not about its body.
    """
    shown = tuple((_field(fault), _message(fault)) for fault in faults[:_MOST_FAULTS])
    detail = "; ".join(f"{field}: {message}" for field, message in shown[:3])
    if len(faults) > 3:
        detail += f"; and {len(faults) - 3} more"
    if content_type is not None and "json" not in content_type.lower():
        detail = 'send JSON with the header "Content-Type: application/json"'
    return InvalidRequestError(detail, faults=shown)


# Parts of pydantic's locations that are not field names: first the input's source, then branches of
# unions.
_SOURCES = ("body", "path", "query")
_BRANCHES = ("text", "list", "number")
_LONGEST_FIELD = 64


def _field(fault: dict[str, Any]) -> str:
    if fault["type"] == "json_invalid":
        return "body"
    place = fault["loc"][1:] if fault["loc"][:1] and fault["loc"][0] in _SOURCES else fault["loc"]
    parts = [str(part) for part in place if part not in _BRANCHES]
    # The caller chooses the names of unknown fields, so they can have any length.
    return ".".join(parts)[:_LONGEST_FIELD] or "body"


def _message(fault: dict[str, Any]) -> str:
    if fault["type"] == "json_invalid":
        reason = fault.get("ctx", {}).get("error", "it cannot be read")
        return f"this is not JSON ({reason})"
    if fault["type"] == "extra_forbidden":
        return "there is no such field"
    if fault["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "this must be a JSON object"
    return str(fault["msg"]).removeprefix("Value error, ")
