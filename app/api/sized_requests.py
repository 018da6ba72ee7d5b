"""Requests whose work is done in place where they are small, and off the event loop if large.

Everybody waits while the event loop works. A hand-over to a thread costs a tenth of a millisecond,
as much as reading a few kilobytes: small requests, which are most, do without it.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app.api.piecewise_json import loads
from app.core.errors import InvalidRequestError
from app.service.off_loop import off_loop
from app.wire.problems import invalid_request

P = ParamSpec("P")
T = TypeVar("T")

# Bytes of a body; to read and check so many takes a few milliseconds at most.
_LARGE = 2**16
# Items of a batch, in request or answer; likewise.
MANY = 64

# A value -> what was made of it, and what is wrong with it.
_Check = Callable[[Any], tuple[Any, list[Any]]]


class _InvalidBodyError(HTTPException):
    """Carries what is wrong through FastAPI, which takes other errors of reading for its own."""

    def __init__(self, error: InvalidRequestError) -> None:
        super().__init__(422)
        self.error = error


class SizedRequest(Request):
    """A request that knows whether its body is large.

    Args:
        request: As the server has it.
        check: Validates the body as its route declares it; None where a route takes none.
    """

    def __init__(self, request: Request, check: _Check | None) -> None:
        super().__init__(request.scope, request.receive)
        self._check = check
        self._is_large = False

    async def json(self) -> Any:
        """The body as JSON; a large one is validated already, which takes longer than to parse."""
        body = await self.body()
        if self._check is None or len(body) <= _LARGE:
            return await super().json()
        self._is_large = True
        checked, error = await off_loop(_validated, body, self._check)
        if error is not None:
            raise _InvalidBodyError(error)
        return checked

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function whose work grows with the body: in a thread if the body is large."""
        if self._is_large:
            return await off_loop(function, *args, **kwargs)
        return function(*args, **kwargs)


class SizedRoute(APIRoute):
    """A route that hands a `SizedRequest` to its endpoint."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, which reads the body by `SizedRequest.json`."""
        handle, field = super().get_route_handler(), self.body_field

        def check(value: Any) -> tuple[Any, list[Any]]:
            assert field is not None, "called with a body only"
            return field.validate(value, {}, loc=("body",))

        async def handle_sized(request: Request) -> Response:
            try:
                return await handle(SizedRequest(request, check if field is not None else None))
            except _InvalidBodyError as exc:
                error = exc.error
            # Outside of the handler: an exception keeps the frames of its context, and so the body.
            raise error

        return handle_sized


def _validated(body: bytes, check: _Check) -> tuple[Any, InvalidRequestError | None]:
    """The body as its route declares it, or what is wrong with it."""
    found = loads(body)
    if found is None:
        return None, None  # No body at all for FastAPI, which says so.
    checked, faults = check(found)
    return checked, invalid_request(faults) if faults else None


async def answer_of(
    make: Callable[[], BaseModel], *, many: bool, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer that FastAPI would make of a model, made and written off the event loop.

    Args:
        make: Makes the model.
        many: Whether that is worth a hand-over; a small answer is written in place.
        headers: Of the answer.
    """

    def content() -> bytes:
        return make().model_dump_json(by_alias=True).encode()

    written = await off_loop(content) if many else content()
    return Response(written, media_type="application/json", headers=headers)
