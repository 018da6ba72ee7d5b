"""Errors -> RFC 9457 problems. The table below is the only place that knows HTTP statuses."""

import logging
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.core import errors
from app.core.errors import InvalidRequestError, ScopeJudgeError, UnavailableError

logger = logging.getLogger("app.api")

STATUS: dict[type[ScopeJudgeError], int] = {
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.InvalidRequestError: 422,
    errors.InvalidComparisonError: 422,
    errors.BodyTooLargeError: 413,
    errors.BodyTooSlowError: 408,
    errors.BatchTooLargeError: 413,
    errors.PromptTooLongError: 413,
    errors.ControlTokenError: 422,
    errors.RouteNotFoundError: 404,
    errors.MethodNotAllowedError: 405,
    errors.CalibrationNotFoundError: 404,
    errors.VersionNotFoundError: 404,
    errors.JudgeMismatchError: 409,
    errors.OverloadedError: 429,
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


class Fault(BaseModel):
    """One field that is wrong."""

    field: str
    message: str


class Problem(BaseModel):
    """What went wrong, for programs (`code`) and for people (`detail`); RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    # A closed set in the document; made from the table, so that it cannot differ from it.
    code: str = Field(json_schema_extra={"enum": [error.code for error in STATUS]})
    errors: list[Fault] | None = None


def problem_of(error: ScopeJudgeError) -> Problem:
    """Describes an error for the caller."""
    faults = error.faults if isinstance(error, InvalidRequestError) else ()
    return Problem(
        type=f"urn:scope-judge:problem:{error.code}",
        title=error.title,
        status=STATUS[type(error)],
        detail=error.detail,
        code=error.code,
        errors=[Fault(field=field, message=message) for field, message in faults] or None,
    )


def answer(app: FastAPI, error: ScopeJudgeError, headers: dict[str, str] | None = None) -> Response:
    """The response that an error is answered with, counted by its code."""
    services = getattr(app.state, "services", None)
    if services is not None:
        services.telemetry.count_problem(error.code)
    problem = problem_of(error)
    headers = dict(headers or {})
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, errors.BodyTooSlowError):
        # The rest of the body would be waited for before the next request.
        headers["Connection"] = "close"
    if isinstance(error, errors.MethodNotAllowedError):
        headers["Allow"] = ", ".join(error.allowed)
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=problem.status,
        headers=headers,
        media_type="application/problem+json",
    )


def invalid_request(
    faults: Sequence[Any], *, content_type: str | None = None
) -> InvalidRequestError:
    """Turns pydantic's errors into ours, without what the caller sent.

    FastAPI's own answer repeats the input once for every error.
    """
    found = tuple((_field(fault), _message(fault)) for fault in faults[:_MOST_FAULTS])
    detail = "; ".join(f"{field}: {message}" for field, message in found[:3])
    if len(faults) > 3:
        detail += f"; and {len(faults) - 3} more"
    if content_type is not None and "json" not in content_type:
        detail = 'send JSON with the header "Content-Type: application/json"'
    return InvalidRequestError(detail, faults=found)


# Not fields of ours: where the fault is from, and the branches of a union.
_NO_FIELDS = ("body", "path", "text", "list", "number")
_LONGEST_FIELD = 64


def _field(fault: dict[str, Any]) -> str:
    if fault["type"] == "json_invalid":
        return "body"
    parts = [str(part) for part in fault["loc"] if part not in _NO_FIELDS]
    # An unknown field's name is the caller's, and as long as the caller likes.
    return ".".join(parts)[:_LONGEST_FIELD] or "body"


def _message(fault: dict[str, Any]) -> str:
    if fault["type"] == "json_invalid":
        reason = fault.get("ctx", {}).get("error", "it cannot be read")
        return f"this is not JSON ({reason}, at character {fault['loc'][-1]})"
    if fault["type"] == "extra_forbidden":
        return "there is no such field"
    if fault["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "this must be a JSON object"
    return str(fault["msg"]).removeprefix("Value error, ")


def log_defect(exc: BaseException) -> None:
    """Logs where an unforeseen error came from; never its message, which may hold a text."""
    places = "".join(traceback.format_tb(exc.__traceback__))
    logger.error("unforeseen %s at\n%s", type(exc).__qualname__, places)


def no_route(path: str) -> errors.RouteNotFoundError:
    """The error for a path that names nothing."""
    return errors.RouteNotFoundError(f"there is no {path[:_LONGEST_FIELD]}")


def no_method(allowed: Iterable[str]) -> errors.MethodNotAllowedError:
    """The error for a method that a path does not take."""
    methods = tuple(sorted(allowed))
    return errors.MethodNotAllowedError(f"this path takes {', '.join(methods)}", allowed=methods)


def install(app: FastAPI) -> None:
    """Makes every error of `app` a problem, counted by its code."""

    async def on_ours(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, ScopeJudgeError)
        if isinstance(exc, errors.DefectError):
            log_defect(exc)
        return answer(request.app, exc)

    async def on_validation(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        faults = exc.errors()
        # A path has no content type: its faults are told as they are.
        in_body = any(fault["loc"][:1] == ("body",) for fault in faults)
        content_type = request.headers.get("content-type", "") if in_body else None
        return answer(request.app, invalid_request(faults, content_type=content_type))

    async def on_http(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        # Paths and methods that there are not were refused before the router (Authentication).
        return answer(request.app, InvalidRequestError("the body cannot be read as JSON"))

    app.add_exception_handler(ScopeJudgeError, on_ours)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
