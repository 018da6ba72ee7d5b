"""Errors as RFC 9457 problems; STATUS is the only table of HTTP statuses."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.core import errors
from app.core.errors import InvalidRequestError, ScopeJudgeError, UnavailableError
from app.observability.logs import log_defect
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
    errors.LabelsDifferError: 409,
    errors.SetFullError: 409,
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

# The `responses` of a route. FastAPI would document a `model` as application/json; the schema is a
# component of the document because batch answers contain problems.
_CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request is refused.", "content": _CONTENT},
    "5XX": {"description": "The service cannot answer it now.", "content": _CONTENT},
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


_LONGEST_PATH = 64


def answer(app: FastAPI, error: ScopeJudgeError, headers: dict[str, str] | None = None) -> Response:
    """Makes the response for an error, and counts its code."""
    services = getattr(app.state, "services", None)
    if services is not None:
        services.telemetry.problems.labels(error.code).inc()
    problem = problem_of(error)
    headers = dict(headers or {})
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, errors.MethodNotAllowedError):
        headers["Allow"] = ", ".join(error.allowed)
    return JSONResponse(
        without_none(problem),
        status_code=problem.status,
        headers=headers,
        media_type="application/problem+json",
    )


def no_route(path: str) -> errors.RouteNotFoundError:
    """The error for an unknown path."""
    return errors.RouteNotFoundError(f"there is no route {path[:_LONGEST_PATH]}")


class InvalidBodyError(HTTPException):
    """Carries an error through FastAPI, which replaces all but its own while it reads a body."""

    def __init__(self, error: InvalidRequestError) -> None:
        super().__init__(422)
        self.error = error


def install(app: FastAPI) -> None:
    """Installs the handlers that turn every exception of the routes into a problem."""

    async def on_ours(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, ScopeJudgeError)
        if isinstance(exc, errors.DefectError):
            log_defect(exc)
        return answer(request.app, exc)

    async def on_validation(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        faults = exc.errors()
        # The content type matters only for faults in the body, not for those in path or query.
        in_body = any(fault["loc"][:1] == ("body",) for fault in faults)
        content_type = request.headers.get("content-type", "") if in_body else None
        return answer(request.app, invalid_request(faults, content_type=content_type))

    async def on_http(request: Request, exc: Exception) -> Response:
        # Authentication has already refused unknown paths and methods, so it is about the body.
        if isinstance(exc, InvalidBodyError):
            return answer(request.app, exc.error)
        return answer(request.app, InvalidRequestError("the body cannot be read as JSON"))

    app.add_exception_handler(ScopeJudgeError, on_ours)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
