"""The parts of all routes: a request with its JSON, its caller and the services, and its answer."""

import dataclasses
import json
import math
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ParamSpec, TypeVar, cast
from urllib.parse import unquote

from fastapi import Depends, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError

from app.api.access import ANYONE, CALLER_KEY, NEEDS, Caller
from app.api.problems import InvalidBodyError, invalid_request
from app.api.requests.models import CalibrationName
from app.core.comparison import Case, Criterion
from app.core.errors import (
    BatchTooLargeError,
    InternalError,
)
from app.flow import off_loop
from app.judging.services import Services

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

LONGEST_NAME = 64
# Bytes of a body above which it is large. The worst smaller one, a reward of 45 short responses,
# takes 22 ms.
LARGE_BYTES = 2**13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonRequest(Request):
    """A request of a caller, whose JSON body is parsed and validated in one step."""

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

    @property
    def services(self) -> Services:
        """The parts of the service."""
        return cast(Services, self.app.state.services)

    @property
    def caller(self) -> Caller:
        """The sender of the request.

        A service without a key file has no keys that could own the request. It takes the name that
        a browser sends with labels; judgments are counted by key, so their callers have no names of
        their own.
        """
        caller = self.scope.get(CALLER_KEY)
        if caller is not None:
            return cast(Caller, caller)
        name = unquote(self.headers.get("x-scope-person", "")).strip()
        is_name = 0 < len(name) <= LONGEST_NAME and name.isprintable()
        judges = NEEDS.get((self.method, self.scope["route"].path)) == "judge"
        return ANYONE.model_copy(update={"name": name}) if is_name and not judges else ANYONE

    def check_criterion(self, criterion: Criterion) -> None:
        """Raises ForbiddenError if the caller may not use the criterion's calibration set."""
        # Without an alpha no calibration set is used.
        if criterion.alpha is not None:
            self.caller.check_calibration(criterion.calibration)

    def check_comparisons(self, count: int) -> None:
        """Raises BatchTooLargeError if the request has more comparisons than the limit."""
        limit = self.services.limits.max_batch
        if count > limit:
            raise BatchTooLargeError(
                f"the request has {count} comparisons and the limit is {limit} (half of "
                "SCOPE_MAX_PENDING): send smaller batches"
            )

    def check_responses(self, count: int) -> None:
        """Raises BatchTooLargeError if a request for rewards has too many responses.

        Equal and blank responses make no comparisons, so the limit of comparisons does not bound
        them.
        """
        # As many as the largest request can have if it compares pairs.
        limit = 2 * self.services.limits.max_batch
        if count > limit:
            raise BatchTooLargeError(
                f"the request has {count} responses and the limit is {limit} ("
                "SCOPE_MAX_PENDING): send fewer responses or groups at once"
            )

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


async def _permitted(
    name: Annotated[CalibrationName, Path(description="The calibration set.")],
    request: JsonRequest,
) -> str:
    request.caller.check_calibration(name)
    return name


# Name of the set in the path, which the caller may use.
SetName = Annotated[str, Depends(_permitted)]


def made(kind: type[R], /, *sources: object, **given: Any) -> R:
    """A record with the given fields; each other one is that of the first source that has it.

    So the order of the sources decides. A field that no source has keeps its default. A source has
    the fields and properties that its class declares.
    """
    for name, place in _places(cast(Hashable, kind), tuple(map(type, sources))):
        if name not in given:
            given[name] = getattr(sources[place], name)
    return kind(**given)


@cache
def _places(kind: Hashable, sources: tuple[type, ...]) -> list[tuple[str, int]]:
    """The place of the first source that has a field, for each field of a record."""
    return [
        (field.name, place)
        for field in dataclasses.fields(cast(Any, kind))
        for place in [i for i, each in enumerate(sources) if _declares(each, field.name)][:1]
    ]


def _declares(source: type, name: str) -> bool:
    return hasattr(source, name) or name in getattr(source, "__dataclass_fields__", ())


def to_json(record: Any) -> bytes:
    """The JSON of a record.

    Raises:
        InternalError: A number is NaN or infinite. pydantic's own writer makes it null, which has
            a meaning in answers.
    """
    value = _adapter(cast(Hashable, type(record))).dump_python(record, mode="json")
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as exc:
        raise InternalError(f"a {type(record).__name__} has a number that is not finite") from exc
    return text.encode()


# Making one takes a few milliseconds.
@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


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


def age_headers(judged: Iterable[object]) -> dict[str, str]:
    """The header with the age of the oldest calibration, if the store has not confirmed one."""
    oldest = max((case.age_s for case in judged if isinstance(case, Case)), default=0.0)
    return {AGE_HEADER: str(math.ceil(oldest))} if oldest > 0 else {}


def as_json(make: Callable[[], object], *, headers: Mapping[str, str] | None = None) -> Response:
    """The response with the JSON of a record.

    A large one is made in a thread: `await off_loop(as_json, make)`.
    """
    return Response(to_json(make()), media_type="application/json", headers=headers)
