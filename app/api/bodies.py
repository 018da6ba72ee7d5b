"""Reads JSON bodies with pydantic's own parser, in a thread where they are large.

All requests wait while the event loop works. A hand-over to a thread costs 0.1 ms, as much as
parsing a few kilobytes, so a small body (the most common one) is handled on the event loop.
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Sequence
from operator import itemgetter
from typing import Any, Generic, ParamSpec, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from app.api.answers.problems import invalid_request, problem_of
from app.api.errors import InvalidBodyError
from app.api.requests.models import read_item
from app.core.errors import RequestError, ScopeJudgeError
from app.off_loop import off_loop
from scope_judge.records import ExampleError

P = ParamSpec("P")
T = TypeVar("T")

# Bytes of a body above which it is large. The worst smaller one, a reward of 45 short responses,
# takes 22 ms.
LARGE_BYTES = 2**13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonRequest(Request):
    """A request whose JSON body is parsed and validated in one step.

    Args:
        request: The request from the server.
        model: The model of the body; None if the route has no body.
    """

    def __init__(self, request: Request, model: type[BaseModel] | None) -> None:
        super().__init__(request.scope, request.receive)
        self._model = model

    async def json(self) -> Any:
        """The validated body, as FastAPI passes it to the endpoint.

        Raises:
            InvalidBodyError: The body is not JSON, or it is not valid.
        """
        if self._model is None:
            return await super().json()
        return await self.run(_validated, self._model, await self.body())

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function whose work grows with the body; in a thread if the body is large."""
        if len(await self.body()) > LARGE_BYTES:
            return await off_loop(function, *args, **kwargs)
        return function(*args, **kwargs)


class JsonRoute(APIRoute):
    """A route whose endpoint gets a `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, which reads the body with `JsonRequest.json`."""
        handle = super().get_route_handler()
        model: Any = None if self.body_field is None else self.body_field.field_info.annotation

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request, model))

        return handle_json


def _validated(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return _parsed(model, body.removeprefix(_BYTE_ORDER_MARK))
    except ValidationError as exc:
        faults: Sequence[Any] = exc.errors(include_url=False, include_input=False)
    except (ValueError, RecursionError) as exc:
        faults = [{"type": "json_invalid", "loc": (), "ctx": {"error": str(exc)}}]
    # Raised here, because the context of the exception would keep the body.
    raise InvalidBodyError(
        invalid_request([{**fault, "loc": ("body", *fault["loc"])} for fault in faults])
    )


def _parsed(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return model.model_validate_json(body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        if first["type"] != "json_invalid" or "hex escape" not in first["msg"]:
            raise
    # Half a surrogate pair, as programs write that cut a text between two UTF-16 units. Pydantic's
    # parser refuses the whole body; the standard library's lets one bad item be an item's error.
    # It calls a Python function for each number, so that other threads can run in between.
    return model.model_validate(
        json.loads(body, parse_int=lambda n: int(n), parse_float=lambda n: float(n))
    )


Item = TypeVar("Item", bound=BaseModel)
Read = TypeVar("Read")


class PostedItems(Generic[Read]):
    """The items of a batch.

    Args:
        model: The model of an item.
        posted: All items as they were posted, in order.
        convert: Makes an item to judge; raises RequestError if it cannot be judged as written.
    """

    def __init__(
        self, model: type[Item], posted: Sequence[Any], convert: Callable[[Item], Read]
    ) -> None:
        self._ids: list[str | int | None] = []
        # Index -> item, for those that can be judged.
        self.read: dict[int, Read] = {}
        # (index, error) of all others.
        self.unread: list[tuple[int, ScopeJudgeError]] = []
        for i, value in enumerate(posted):
            identifier, item = read_item(model, value)
            self._ids.append(identifier)
            if isinstance(item, RequestError):
                self.unread.append((i, item))
                continue
            try:
                self.read[i] = convert(item)
            except RequestError as exc:
                self.unread.append((i, exc))

    def __len__(self) -> int:
        return len(self._ids)

    def errors(self, failed: Iterable[tuple[int, ScopeJudgeError]]) -> list[ExampleError]:
        """All errors of the batch, in order.

        Args:
            failed: (index, error) of the items that were not judged. The indexes count only the
                items that could be parsed.
        """
        places = list(self.read)
        both = self.unread + [(places[i], error) for i, error in failed]
        return [
            ExampleError(index=i, id=self._ids[i], error=problem_of(error))
            for i, error in sorted(both, key=itemgetter(0))
        ]
