"""What routes are given: the running services, who asks, and a check on the size of batches."""

from typing import Annotated, cast

from fastapi import Depends, Request

from app.api.auth.callers import ANYONE, CALLER_KEY, Caller
from app.core.errors import BatchTooLargeError
from app.service.services import Services


# Both are async, or FastAPI would hand them to a thread.
async def running_services(request: Request) -> Services:
    """The services that the lifespan opened."""
    return cast(Services, request.app.state.services)


async def calling(request: Request) -> Caller:
    """Whose key the request has; anyone where there is no file of keys."""
    return cast(Caller, request.scope.get(CALLER_KEY, ANYONE))


Running = Annotated[Services, Depends(running_services)]
Calling = Annotated[Caller, Depends(calling)]


def check_batch_size(count: int, services: Services) -> None:
    """Raises BatchTooLargeError where a request holds more comparisons than one may."""
    limit = services.limits.max_batch
    if count > limit:
        raise BatchTooLargeError(
            f"a request may hold {limit} comparisons (SCOPE_MAX_BATCH, and seven eighths of "
            f"SCOPE_MAX_PENDING), this one holds {count}; send several"
        )
