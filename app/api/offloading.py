"""Moves the parsing and writing of large bodies off the event loop.

All requests wait while the event loop works. A hand-over to a thread costs 0.1 ms, as much as
parsing a few kilobytes, so small bodies (the most common ones) are parsed and written on the event
loop.
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from app.api.auth.callers import Caller
from app.api.dependencies import caller_of, services_of
from app.api.piecewise_json import loads
from app.core.errors import InvalidRequestError
from app.service.off_loop import off_loop
from app.service.services import Services
from app.wire.problems import invalid_request

P = ParamSpec("P")
T = TypeVar("T")

# Bytes of a body above which it is large. Parsing and validating so many takes at most a few ms.
_LARGE_BYTES = 2**16
# Items of a batch, in request or answer, above which it is large.
MANY_ITEMS = 64

# Parsed JSON -> the validated model, and pydantic's errors.
_Validate = Callable[[Any], tuple[Any, list[Any]]]


class _InvalidBodyError(HTTPException):
    """Carries our error through FastAPI, which replaces all but its own while it reads a body."""

    def __init__(self, error: InvalidRequestError) -> None:
        super().__init__(422)
        self.error = error


class OffloadingRequest(Request):
    """A request that parses and validates a large body in a thread.

    Args:
        request: The request from the server.
        validate: Validates the body as its route declares it; None if the route has no body.
    """

    def __init__(self, request: Request, validate: _Validate | None) -> None:
        super().__init__(request.scope, request.receive)
        self._validate = validate
        # Whether the body is large; known once it has been parsed.
        self.is_large = False

    async def json(self) -> Any:
        """The parsed body; a large one is already validated, which takes longer than parsing."""
        body = await self.body()
        if self._validate is None or len(body) <= _LARGE_BYTES:
            return await super().json()
        self.is_large = True
        model, error = await off_loop(_validated, body, self._validate)
        if error is not None:
            raise _InvalidBodyError(error)
        return model

    async def valid_body(self) -> Any | None:
        """The validated body; None if it is missing, or not JSON.

        Raises:
            InvalidRequestError: The body is not valid.
        """
        kind = self.headers.get("content-type", "").partition(";")[0]
        if self._validate is None or kind.strip().lower() != "application/json":
            return None
        body = await self.body()
        self.is_large = len(body) > _LARGE_BYTES
        try:
            if self.is_large:
                model, error = await off_loop(_validated, body, self._validate)
            else:
                model, error = _validated(body, self._validate, json.loads)
        except (ValueError, RecursionError):
            return None
        if error is not None:
            raise error
        return model

    @property
    def services(self) -> Services:
        """The services that the lifespan opened."""
        return services_of(self)

    @property
    def caller(self) -> Caller:
        """The owner of the request's key; ANYONE if the service has no key file."""
        return caller_of(self)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function whose work grows with the body; in a thread if the body is large."""
        if self.is_large:
            return await off_loop(function, *args, **kwargs)
        return function(*args, **kwargs)


class OffloadingRoute(APIRoute):
    """A route whose endpoint gets an `OffloadingRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, which reads the body with `OffloadingRequest.json`."""
        handle = super().get_route_handler()

        async def handle_offloading(request: Request) -> Response:
            try:
                return await handle(self.offloading(request))
            except _InvalidBodyError as exc:
                error = exc.error
            # Raised outside the except block, because the exception's context would keep the body.
            raise error

        return handle_offloading

    def offloading(self, request: Request) -> OffloadingRequest:
        """The request of the endpoint."""
        return OffloadingRequest(request, None if self.body_field is None else self._validated)

    def _validated(self, value: Any) -> tuple[Any, list[Any]]:
        assert self.body_field is not None, "called with a body only"
        return self.body_field.validate(value, {}, loc=("body",))


class DirectRoute(OffloadingRoute):
    """A route whose endpoint takes `body` and `request` only, and returns a response.

    FastAPI spends more time around an endpoint than a small judgment takes. So a JSON body goes
    straight to the endpoint. FastAPI gets all others, and reports what is wrong with them.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request whose path is that of the route."""
        request = self.offloading(Request(scope, receive))
        body = await request.valid_body()
        if body is None:

            async def again() -> Message:
                return {"type": "http.request", "body": await request.body(), "more_body": False}

            await super().handle(scope, again, send)
            return
        response: Response = await self.endpoint(body=body, request=request)
        await response(scope, receive, send)


def _validated(
    body: bytes, validate: _Validate, parse: Callable[[bytes], Any] = loads
) -> tuple[Any, InvalidRequestError | None]:
    """The validated body of a route, or its error."""
    found = parse(body)
    if found is None:
        return None, None  # FastAPI treats null as a missing body, and reports it.
    model, faults = validate(found)
    return model, invalid_request(faults) if faults else None


async def json_response(
    make: Callable[[], BaseModel], *, many: bool, headers: Mapping[str, str] | None = None
) -> Response:
    """The response that FastAPI would make of a model; a large one is made in a thread.

    Args:
        make: Makes the model.
        many: Whether the answer is large.
        headers: Headers of the response.
    """

    def content() -> bytes:
        return make().model_dump_json(by_alias=True).encode()

    written = await off_loop(content) if many else content()
    return Response(written, media_type="application/json", headers=headers)
