"""Who is let in to which route. The table below is the only place that knows."""

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Literal

from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from app.api.callers import CALLER_KEY, Role
from app.api.errors import answer
from app.api.keys import Keys
from app.core.errors import (
    ForbiddenError,
    RouteNotFoundError,
    ScopeJudgeError,
    UnauthenticatedError,
)

Need = Role | Literal["key", "nothing", "switch", "nobody"]
MetricsSwitch = Literal["key", "open", "off"]

# Method and path of a route -> a role, or any `key`, or `nothing`; /metrics has its own `switch`.
# Roles do not include each other: a key may have several.
NEEDS: Mapping[tuple[str, str], Need] = {
    ("POST", "/judge"): "judge",
    ("POST", "/judge/batch"): "judge",
    ("POST", "/calibrate"): "calibrate",
    ("GET", "/calibrations"): "key",
    ("GET", "/calibrations/{name}"): "key",
    ("GET", "/calibrations/{name}/versions"): "key",
    ("POST", "/calibrations/{name}/rollback"): "admin",
    ("DELETE", "/calibrations/{name}"): "admin",
    ("GET", "/healthz"): "nothing",
    ("GET", "/readyz"): "nothing",
    ("GET", "/metrics"): "switch",
    ("GET", "/info"): "key",
    ("GET", "/openapi.json"): "key",
    ("GET", "/docs"): "key",
    ("GET", "/docs/oauth2-redirect"): "key",
    ("GET", "/redoc"): "key",
}

_HEALTH = frozenset(path for (_, path), need in NEEDS.items() if need == "nothing")
_PORT = re.compile(r":\d*$")


class Authentication:
    """Lets in who may, before anything of the request's body is read.

    Args:
        app: What it stands before.
        keys: Who is let in; None for everybody.
        metrics: Who may read /metrics.
    """

    def __init__(self, app: ASGIApp, *, keys: Keys | None, metrics: MetricsSwitch) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics

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
                await answer(scope["app"], exc, _challenge(exc, scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _let_in(self, scope: Scope) -> None:
        if self._keys is None:
            _check_local(scope)
            if self._metrics != "off":
                return
        path, need = _needed(scope)
        if path == "/metrics" and self._metrics == "off":
            raise RouteNotFoundError("there is no /metrics here: SCOPE_METRICS is off")
        if need == "switch":
            need = "nothing" if self._metrics == "open" else "metrics"
        if self._keys is None or need == "nothing":
            return
        sent = _sent_key(scope)
        if sent is None:
            raise UnauthenticatedError("send a key, in one header `Authorization: Bearer KEY`")
        caller = self._keys.caller(sent)
        if need != "key" and need not in caller.roles:
            raise ForbiddenError(
                f"the key {caller.name!r} has not the role {need!r} that this needs: "
                "`scope-judge keys list` shows what it has"
            )
        scope[CALLER_KEY] = caller


def _check_local(scope: Scope) -> None:
    """Without keys only this machine is served, whatever address somebody else's server listens on.

    And only by its own names: a web page may make a browser of this machine send requests here, if
    its own name is looked up as 127.0.0.1.
    """
    if scope["path"] in _HEALTH:
        return
    client = scope.get("client")
    # Behind a proxy of this machine uvicorn has put the client's address here (X-Forwarded-For).
    if client and not is_loopback(client[0]):
        raise _only_local()
    address = (scope.get("server") or ("", None))[0]
    if scope.get("server") and scope["server"][1] is not None and not is_loopback(address):
        raise _only_local()
    host = Headers(scope=scope).get("host", "")
    name = host.rpartition(":")[0] if _PORT.search(host) else host
    if host and not is_loopback(name.strip("[]")):
        raise _only_local()


def _only_local() -> ForbiddenError:
    return ForbiddenError(
        "without a file of keys only this machine is served, as 127.0.0.1 or localhost: make a key "
        "with `scope-judge keys add` and set SCOPE_API_KEYS_FILE"
    )


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Whether an address is this machine's own; a name that has to be looked up is not."""
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _needed(scope: Scope) -> tuple[str | None, Need]:
    """The path of the route that the request will come to, and what that needs.

    The router's own routes are asked: a second reading of paths would sooner or later differ.
    """
    nearest: str | None = None
    for route in scope["app"].routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            # A route that nobody put into the table is for nobody.
            return route.path, NEEDS.get((method, route.path), "nobody")
        if match is Match.PARTIAL and nearest is None:
            nearest = route.path
    # Which paths and methods there are, nobody learns without a key.
    return nearest, "key"


def _sent_key(scope: Scope) -> bytes | None:
    """The key that was sent; None unless there is exactly one header, of this scheme."""
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(sent) != 1:
        return None
    scheme, _, key = sent[0].partition(b" ")
    return key.strip() or None if scheme.lower() == b"bearer" else None


def _challenge(error: ScopeJudgeError, scope: Scope) -> dict[str, str] | None:
    if not isinstance(error, UnauthenticatedError):
        return None
    wrong = ', error="invalid_token"' if _sent_key(scope) is not None else ""
    return {"WWW-Authenticate": f'Bearer realm="scope-judge"{wrong}'}
