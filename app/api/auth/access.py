"""Lets a request in to its route."""

from typing import Any, Literal, NamedTuple

from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from app.api.auth.callers import CALLER_KEY, Caller
from app.api.auth.keys import Keys
from app.api.auth.local import check_local
from app.api.auth.needs import NEEDS, Need
from app.api.errors import answer, no_method, no_route
from app.core.errors import (
    ForbiddenError,
    OverloadedError,
    RouteNotFoundError,
    ScopeJudgeError,
    UnauthenticatedError,
)

MetricsSwitch = Literal["key", "open", "off"]

# In a connection's state: the server has as many connections as it may, and all of them are busy.
CROWDED = "scope_judge.crowded"

_HEALTH = frozenset(path for (_, path), need in NEEDS.items() if need == "nothing")


class _Place(NamedTuple):
    """Where a request leads to.

    Args:
        route: The route of the path; None where there is none.
        need: What the route needs of the caller.
        allowed: The methods of the path, where the request has another.
    """

    route: Any
    need: Need
    allowed: frozenset[str] | None


class Authentication:
    """Refuses what no route takes and what the caller may not do, before a body is read.

    Args:
        app: What it stands before.
        keys: Who is let in; None for everybody.
        metrics: Who may read /metrics.
    """

    def __init__(self, app: ASGIApp, *, keys: Keys | None, metrics: MetricsSwitch) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics
        # Paths without a name in them, and the methods that they take: a closed set.
        self._places: dict[tuple[str, str], _Place] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection of any kind."""
        if scope["type"] == "websocket" and self._keys is not None:
            # There is no such route; one that is added must not be open by accident.
            await WebSocketClose()(scope, receive, send)
            return
        if scope["type"] == "http":
            try:
                self._let_in(scope)
            except ScopeJudgeError as exc:
                await answer(scope["app"], exc, _headers(exc, scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _let_in(self, scope: Scope) -> None:
        if CROWDED in scope.get("state", ()) and scope["path"] not in _HEALTH:
            raise OverloadedError(
                "as many connections are open as may be, each with a request "
                "(SCOPE_MAX_CONNECTIONS): try again later"
            )
        if self._keys is None and scope["path"] not in _HEALTH:
            check_local(scope)
        route, need, allowed = self._place(scope)
        path = None if route is None else route.path
        if path == "/metrics" and self._metrics == "off":
            raise RouteNotFoundError("there is no /metrics here: SCOPE_METRICS is off")
        if need == "switch":
            need = "nothing" if self._metrics == "open" else "metrics"
        caller = None
        if self._keys is not None and need != "nothing":
            caller = scope[CALLER_KEY] = _caller(self._keys, scope)
        if route is None:
            raise no_route(scope["path"])
        if allowed is not None:
            # Counted at this route, as if the router had refused it.
            scope["route"] = route
            raise no_method(allowed)
        if caller is not None and need != "key" and need not in caller.roles:
            raise ForbiddenError(
                f"the key {caller.name!r} has not the role {need!r} that this needs: "
                "`scope-judge keys list` shows what it has"
            )

    def _place(self, scope: Scope) -> _Place:
        key = (scope["method"], scope["path"])
        place = self._places.get(key)
        if place is None:
            place = _place(scope)
            if place.allowed is None and place.route is not None and place.route.path == key[1]:
                self._places[key] = place
        return place


def _caller(keys: Keys, scope: Scope) -> Caller:
    sent = _sent_key(scope)
    if sent is None:
        raise UnauthenticatedError("send a key, in one header `Authorization: Bearer KEY`")
    return keys.caller(sent)


def _place(scope: Scope) -> _Place:
    """Where the request leads to, as the router would find it.

    The router's own routes are asked: a second reading of paths would sooner or later differ.
    """
    nearest: Any = None
    allowed: set[str] = set()
    route: Any
    for route in scope["app"].routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            # A route that nobody put into the table is for nobody.
            return _Place(route, NEEDS.get((method, route.path), "nobody"), None)
        if match is Match.PARTIAL:
            nearest = nearest or route
            allowed |= route.methods
    # Without a key nobody learns which paths and methods there are.
    return _Place(nearest, "key", None if nearest is None else frozenset(allowed))


def _sent_key(scope: Scope) -> bytes | None:
    """The key that was sent; None unless there is exactly one header, of this scheme."""
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(sent) != 1:
        return None
    scheme, _, key = sent[0].partition(b" ")
    return key.strip() or None if scheme.lower() == b"bearer" else None


def _headers(error: ScopeJudgeError, scope: Scope) -> dict[str, str] | None:
    if CROWDED in scope.get("state", ()):
        return {"Connection": "close"}
    if not isinstance(error, UnauthenticatedError):
        return None
    wrong = ', error="invalid_token"' if _sent_key(scope) is not None else ""
    return {"WWW-Authenticate": f'Bearer realm="scope-judge"{wrong}'}
