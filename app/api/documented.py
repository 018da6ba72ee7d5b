"""How a route's errors stand in the OpenAPI document: by status, with their codes."""

from typing import Any

from app.core import errors
from app.core.errors import ScopeJudgeError
from app.wire.problems import STATUS

# As `model` it would be documented as application/json; it is a component as part of the answers.
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

# Of what stands around every route.
_AROUND: tuple[type[ScopeJudgeError], ...] = (
    errors.BodyTooLargeError,
    errors.BodyTooSlowError,
    errors.OverloadedError,
    errors.DeadlineExceededError,
    errors.DrainingError,
    errors.InternalError,
)

# Of a route that needs a key, where there is a file of keys.
KEYED: tuple[type[ScopeJudgeError], ...] = (
    errors.UnauthenticatedError,
    errors.KeysUnavailableError,
)
# Of a route that needs a role, or touches one calibration set.
GUARDED = (*KEYED, errors.ForbiddenError, errors.InvalidRequestError)
STORE: tuple[type[ScopeJudgeError], ...] = (
    errors.StoreUnavailableError,
    errors.StoreCorruptError,
)
ENGINE: tuple[type[ScopeJudgeError], ...] = (
    errors.EngineUnavailableError,
    errors.JudgmentFailedError,
)


def problems(*found: type[ScopeJudgeError]) -> dict[int | str, dict[str, Any]]:
    """A route's `responses`: these errors, and those that any route can end in."""
    by_status: dict[int, list[str]] = {}
    for error, status in STATUS.items():
        if error in (*_AROUND, *found):
            by_status.setdefault(status, []).append(f"{error.title} (`{error.code}`)")
    return {
        status: {"description": "; ".join(lines), "content": _PROBLEM}
        for status, lines in by_status.items()
    }
