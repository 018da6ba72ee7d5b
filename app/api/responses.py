"""Answers of the routes: their JSON, the age of their thresholds, and their documented errors."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import Response

from app.api.answers.making import to_json
from app.api.answers.problems import STATUS
from app.core import errors
from app.core.comparison import Judgment
from app.core.errors import ScopeJudgeError

# Seconds since the store last confirmed the thresholds of an answer, while the store is away.
AGE_HEADER = "Scope-Calibration-Age"
AGED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            AGE_HEADER: {
                "description": "Age of the thresholds: seconds since the calibration store last "
                "confirmed them. Sent only while the store does not answer.",
                "schema": {"type": "integer"},
            }
        }
    }
}


def age_headers(judgments: Iterable[Judgment]) -> dict[str, str]:
    """The header with the age of the oldest calibration, if the store has not confirmed one."""
    ages = (judgment.age_s for judgment in judgments)
    oldest = max(ages, default=0.0)
    return {AGE_HEADER: str(math.ceil(oldest))} if oldest > 0 else {}


def as_json(make: Callable[[], object], *, headers: Mapping[str, str] | None = None) -> Response:
    """The response with the JSON of a record.

    A large one is made in a thread: `await off_loop(as_json, make)`.
    """
    return Response(to_json(make()), media_type="application/json", headers=headers)


# FastAPI would document a `model` as application/json. The schema is a component of the document
# because batch answers contain problems.
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

# Errors of the middleware, which any route can return.
_MIDDLEWARE_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.BodyTooLargeError,
    errors.OverloadedError,
    errors.RateLimitedError,
    errors.DeadlineExceededError,
    errors.DrainingError,
    errors.InternalError,
)

# Errors of a route that needs a key, if the service has a key file.
KEY_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.UnauthenticatedError,
    errors.ForbiddenError,
    errors.KeysUnavailableError,
)
# Errors of a route that needs a role or uses one calibration set.
ACCESS_ERRORS = (*KEY_ERRORS, errors.InvalidRequestError)
STORE_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.StoreUnavailableError,
    errors.StoreCorruptError,
)
ENGINE_ERRORS: tuple[type[ScopeJudgeError], ...] = (
    errors.EngineUnavailableError,
    errors.JudgmentFailedError,
)
# Errors of a route that judges many pairs, or that uses one set or changes it.
BATCH_ERRORS = (*ACCESS_ERRORS, *STORE_ERRORS, *ENGINE_ERRORS, errors.BatchTooLargeError)
SET_ERRORS = (*ACCESS_ERRORS, *STORE_ERRORS, errors.CalibrationNotFoundError)
CHANGE_ERRORS = (
    *SET_ERRORS,
    errors.JudgeMismatchError,
    errors.BecomesInfeasibleError,
    errors.SetFullError,
)


def error_responses(*of_route: type[ScopeJudgeError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: its own errors, and those that any route can return."""
    by_status: dict[int, list[str]] = {}
    for error, status in STATUS.items():
        if error in (*_MIDDLEWARE_ERRORS, *of_route):
            by_status.setdefault(status, []).append(f"{error.title} (`{error.code}`)")
    return {
        status: {"description": "; ".join(lines), "content": _PROBLEM}
        for status, lines in by_status.items()
    }
