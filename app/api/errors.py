"""Answers every error with an RFC 9457 problem."""

from collections.abc import Iterable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.api.answers.problems import invalid_request, problem_of, without_none
from app.core import errors
from app.core.errors import InvalidRequestError, ScopeJudgeError, UnavailableError
from app.observability.logs import log_defect

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


def no_method(allowed: Iterable[str]) -> errors.MethodNotAllowedError:
    """The error for a method that a path does not allow."""
    methods = tuple(sorted(allowed))
    return errors.MethodNotAllowedError(f"this path allows {', '.join(methods)}", allowed=methods)


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
