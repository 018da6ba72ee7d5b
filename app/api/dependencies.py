"""Dependencies of the routes, and the checks that several routes make."""

from typing import Annotated, cast
from urllib.parse import unquote

from fastapi import Depends, Path, Request

from app.api.auth.callers import ANYONE, CALLER_KEY, Caller
from app.api.auth.needs import NEEDS
from app.api.requests.models import CalibrationName
from app.core.comparison import Criterion
from app.core.errors import BatchTooLargeError
from app.judging.services import Services

LONGEST_NAME = 64


# Both are async, because FastAPI runs ordinary functions in a thread.
async def _current_services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def _current_caller(request: Request) -> Caller:
    caller = request.scope.get(CALLER_KEY)
    # A service without a key file has no keys that could own the request.
    return _person(request) if caller is None else cast(Caller, caller)


def _person(request: Request) -> Caller:
    """The caller of a service without keys, by the name that a browser sends with labels.

    Judgments are counted by key, so their callers have no names of their own.
    """
    name = unquote(request.headers.get("x-scope-person", "")).strip()
    is_name = 0 < len(name) <= LONGEST_NAME and name.isprintable()
    return ANYONE.model_copy(update={"name": name}) if is_name and not _judges(request) else ANYONE


def _judges(request: Request) -> bool:
    return NEEDS.get((request.method, request.scope["route"].path)) == "judge"


CurrentServices = Annotated[Services, Depends(_current_services)]
CurrentCaller = Annotated[Caller, Depends(_current_caller)]


async def _permitted(
    name: Annotated[CalibrationName, Path(description="The calibration set.")],
    caller: CurrentCaller,
) -> str:
    caller.check_calibration(name)
    return name


# Name of the set in the path, which the caller may use.
SetName = Annotated[str, Depends(_permitted)]


def check_batch_size(count: int, services: Services) -> None:
    """Raises BatchTooLargeError if a request has more comparisons than the limit."""
    limit = services.limits.max_batch
    if count > limit:
        raise BatchTooLargeError(
            f"the request has {count} comparisons and the limit is {limit} (half of "
            "SCOPE_MAX_PENDING): send smaller batches"
        )


def check_responses(count: int, services: Services) -> None:
    """Raises BatchTooLargeError if a request for rewards has too many responses.

    Equal and blank responses make no comparisons, so the limit of comparisons does not bound them.
    """
    # As many as the largest request can have if it compares pairs.
    limit = 2 * services.limits.max_batch
    if count > limit:
        raise BatchTooLargeError(
            f"the request has {count} responses and the limit is {limit} ("
            "SCOPE_MAX_PENDING): send fewer responses or groups at once"
        )


def check_criterion(caller: Caller, criterion: Criterion) -> None:
    """Raises ForbiddenError if the caller may not use the criterion's calibration set."""
    # Without an alpha no calibration set is used.
    if criterion.alpha is not None:
        caller.check_calibration(criterion.calibration)
