"""Documents the errors of a route for the OpenAPI document: by status, with their codes."""

from typing import Any

from app.core import errors
from app.core.errors import ScopeJudgeError
from app.wire.problems import STATUS

# FastAPI would document a `model` as application/json. The schema is a component of the document
# because batch answers contain problems.
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

# Errors of the middleware, which any route can return.
_MIDDLEWARE_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.BodyTooLargeError,
    errors.BodyTooSlowError,
    errors.OverloadedError,
    errors.DeadlineExceededError,
    errors.DrainingError,
    errors.InternalError,
)

# Errors of a route that needs a key, if the service has a key file.
KEY_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.UnauthenticatedError,
    errors.KeysUnavailableError,
)
# Errors of a route that needs a role or uses one calibration set.
ACCESS_ERRORS = (*KEY_ERRORS, errors.ForbiddenError, errors.InvalidRequestError)
STORE_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.StoreUnavailableError,
    errors.StoreCorruptError,
)
ENGINE_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.EngineUnavailableError,
    errors.JudgmentFailedError,
)


def error_responses(*found: type[ScopeJudgeError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: the given errors, and those that any route can return."""
    by_status: dict[int, list[str]] = {}
    for error, status in STATUS.items():
        if error in (*_MIDDLEWARE_ERRORS, *found):
            by_status.setdefault(status, []).append(f"{error.title} (`{error.code}`)")
    return {
        status: {"description": "; ".join(lines), "content": _PROBLEM}
        for status, lines in by_status.items()
    }
