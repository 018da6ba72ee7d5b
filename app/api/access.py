"""Callers, their roles, and the refusal of a request that its caller may not make."""

import base64
import binascii
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from app.api.problems import answer, no_route
from app.core.errors import (
    ForbiddenError,
    MethodNotAllowedError,
    RouteNotFoundError,
    ScopeJudgeError,
    UnauthenticatedError,
)

if TYPE_CHECKING:
    from app.api.keys import Keys

Role = Literal["judge", "calibrate", "label", "admin", "metrics"]
ROLES: tuple[Role, ...] = get_args(Role)
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Caller(BaseModel):
    """The sender of a request, known by the key.

    Args:
        name: Name of the key; the trail of a calibration set records it.
        calibrations: Names of the calibration sets that the key may use; None for all.
        comparisons_per_minute: Most comparisons a minute on average; None for no limit.
        expires: Time after which the key is refused; None for never.
    """

    model_config = STRICT

    name: str
    roles: list[Role]
    calibrations: list[str] | None = None
    comparisons_per_minute: Annotated[int, Field(ge=1)] | None = None
    expires: AwareDatetime | None = None

    @property
    def only_labels(self) -> bool:
        """Whether the caller may label and nothing else, not even read what any key may."""
        return set(self.roles) == {"label"}

    def check_may_label(self) -> None:
        """Raises ForbiddenError unless the caller may read texts of audits and label them."""
        if "calibrate" not in self.roles and "label" not in self.roles:
            raise ForbiddenError(
                f"the key {self.name!r} has neither the role 'label' nor 'calibrate', one of which "
                "this request needs: `scope-judge keys list` shows its roles"
            )

    def may_use(self, calibration: str) -> bool:
        """Whether the caller may use a calibration set."""
        return self.calibrations is None or calibration in self.calibrations

    def check_calibration(self, calibration: str) -> None:
        """Raises ForbiddenError unless the caller may use this calibration set."""
        if not self.may_use(calibration):
            permitted = ", ".join(sorted(self.calibrations or ()))
            raise ForbiddenError(
                f"the key {self.name!r} may not use the calibration {calibration!r}: send "
                f"`calibration` with one of {permitted}, or ask the operator"
            )

    def has_expired(self, now: float) -> bool:
        """Whether the key has expired at a time, in seconds since 1970."""
        return self.expires is not None and now >= self.expires.timestamp()

    def check_not_expired(self, now: float) -> None:
        """Raises ForbiddenError if the key has expired; `now` is in seconds since 1970."""
        if self.expires is not None and self.has_expired(now):
            raise ForbiddenError(
                f"the key {self.name!r} expired at {self.expires:%Y-%m-%d %H:%M %Z}: ask for a new "
                "one (`scope-judge keys add`)"
            )

    def check_all_calibrations(self) -> None:
        """Raises ForbiddenError unless the caller may use every calibration set."""
        if self.calibrations is not None:
            raise ForbiddenError(
                f"the key {self.name!r} is limited to certain calibration sets, and this route "
                f"shows all of them: use a key that was created without --calibration"
            )


# The caller of every request if the service has no key file.
ANYONE = Caller(name="anonymous", roles=list(ROLES))
CALLER_KEY = "scope_judge.caller"


Need = Role | Literal["calibrate or label", "key", "any key", "nothing", "nobody"]
# Method and path of a route -> the required role, `key` (any key that may do more than label),
# `any key`, or `nothing`. Roles do not include each other; a key can have several.
NEEDS: Mapping[tuple[str, str], Need] = {
    ("POST", "/judge"): "judge",
    ("POST", "/judge/batch"): "judge",
    ("POST", "/rewards/group"): "judge",
    ("POST", "/rewards/groups"): "judge",
    ("POST", "/rewards/reference"): "judge",
    ("POST", "/rewards/openrlhf"): "judge",
    ("POST", "/v1/systemone"): "judge",
    ("POST", "/v1/decisions"): "judge",
    ("POST", "/scores"): "judge",
    ("POST", "/calibrate"): "calibrate",
    ("POST", "/calibrate/scores"): "calibrate",
    ("GET", "/calibrations"): "key",
    ("GET", "/calibrations/{name}"): "key",
    ("GET", "/calibrations/{name}/examples"): "key",
    ("POST", "/calibrations/{name}/examples"): "calibrate",
    ("GET", "/calibrations/{name}/monitor"): "key",
    ("GET", "/calibrations/{name}/audit-trail"): "key",
    ("POST", "/calibrations/{name}/resume"): "calibrate",
    ("POST", "/calibrations/{name}/pool"): "calibrate",
    ("POST", "/calibrations/{name}/cascade"): "calibrate",
    ("GET", "/calibrations/{name}/next"): "key",
    ("GET", "/calibrations/{name}/versions"): "key",
    ("POST", "/calibrations/{name}/rollback"): "admin",
    ("DELETE", "/calibrations/{name}"): "admin",
    ("GET", "/audits"): "any key",
    ("POST", "/audits/labels"): "calibrate or label",
    ("POST", "/calibrations/{name}/absorb"): "calibrate",
    ("GET", "/healthz"): "nothing",
    ("GET", "/readyz"): "nothing",
    ("GET", "/metrics"): "metrics",
    ("GET", "/info"): "any key",
    ("GET", "/usage"): "key",
    ("GET", "/openapi.json"): "key",
    ("GET", "/docs"): "key",
    ("GET", "/docs/{name}"): "key",
    # The page has no data: it asks for a key and sends it with its own requests.
    ("GET", "/desk"): "nothing",
    ("GET", "/desk/{file:path}"): "nothing",
}

# Answered without a key, from any machine, and while all connections are busy.
PROBES = frozenset(("/healthz", "/readyz"))

# Trainers send no header of their own to these routes; their HTTP clients make Basic of a key in
# the URL.
TAKES_BASIC = frozenset(path for _, path in NEEDS if path.startswith("/rewards/"))


_PORT = re.compile(r":\d*$")
# Headers that proxies, tunnels and content delivery networks add.
_NAMES_PROXY = frozenset(
    {
        b"forwarded",
        b"x-real-ip",
        b"via",
        b"true-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-original-forwarded-for",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"do-connecting-ip",
        b"x-azure-clientip",
    }
)
_PROXY_PREFIXES = (b"x-forwarded", b"x-envoy-", b"cf-", b"tailscale-")
# No valid address is longer. The limit keeps the cache small.
_LONGEST_ADDRESS = 64


def check_local(scope: Scope) -> None:
    """Raises ForbiddenError unless the request comes from this machine and names it as its host.

    A proxy on this machine makes other machines look like this one, so a header that a proxy adds
    means refusal. The Host header is checked because of DNS rebinding: a web page whose name
    resolves to 127.0.0.1 can make a browser on this machine send requests here.
    """
    client, server = scope.get("client"), scope.get("server")
    if client and not is_loopback(client[0]):
        raise _only_local()
    if server and server[1] is not None and not is_loopback(server[0]):
        raise _only_local()
    for name, value in scope["headers"]:
        is_proxied = name in _NAMES_PROXY or name.startswith(_PROXY_PREFIXES)
        if is_proxied or (name == b"host" and not _is_own_name(value.decode("latin-1"))):
            raise _only_local()


def _is_own_name(host: str) -> bool:
    name = host.rpartition(":")[0] if _PORT.search(host) else host
    return not host or is_loopback(name.strip("[]"))


def _only_local() -> ForbiddenError:
    return ForbiddenError(
        "without a key file only requests from this machine are answered, sent to 127.0.0.1 or "
        "localhost and not through a proxy: make a key with `scope-judge keys add` and set "
        "SCOPE_API_KEYS_FILE"
    )


def is_loopback(name: str) -> bool:
    """Whether an address is a loopback address or "localhost"; other names are not looked up."""
    return len(name) <= _LONGEST_ADDRESS and _is_loopback(name)


@lru_cache(maxsize=256)
def _is_loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


class Authentication:
    """Refuses unknown routes and missing permissions, before the body is read.

    Args:
        keys: The accepted keys; None to accept requests from this machine without a key.
        metrics_port: Port of this machine on which /metrics needs no key and is the only route.
    """

    def __init__(self, app: ASGIApp, *, keys: "Keys | None", metrics_port: int | None) -> None:
        self._app = app
        self._keys = keys
        self._metrics_port = metrics_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type."""
        if scope["type"] == "websocket" and self._keys is not None:
            # No WebSocket route exists. One that is added later must not be open by accident.
            await WebSocketClose()(scope, receive, send)
            return
        if scope["type"] == "http":
            try:
                self._authorize(scope)
            except ScopeJudgeError as exc:
                await answer(scope["app"], exc, _headers(exc, scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _authorize(self, scope: Scope) -> None:
        if self._keys is None and scope["path"] not in PROBES:
            check_local(scope)
        route, need, allowed = _match(scope)
        path = None if route is None else route.path
        if self._is_for_metrics(scope):
            if path != "/metrics":
                raise RouteNotFoundError("this port serves only /metrics (SCOPE_METRICS_PORT)")
            need = "nothing"
        caller = None
        if self._keys is not None and need != "nothing":
            caller = scope[CALLER_KEY] = _caller(self._keys, scope, basic=path in TAKES_BASIC)
        if route is None:
            raise no_route(scope["path"])
        if allowed is not None:
            # The metrics count the request at this route, as if the router had refused it.
            scope["route"] = route
            methods = tuple(sorted(allowed))
            raise MethodNotAllowedError(f"this path allows {', '.join(methods)}", allowed=methods)
        if caller is not None:
            _check_permitted(caller, need)

    def _is_for_metrics(self, scope: Scope) -> bool:
        """Whether the request came to the port of the metrics, not whether its Host says so."""
        server = scope.get("server")
        return server is not None and server[1] is not None and server[1] == self._metrics_port


def _caller(keys: "Keys", scope: Scope, *, basic: bool) -> Caller:
    sent = _sent_key(scope, basic=basic)
    if sent is None:
        raise UnauthenticatedError(
            "send a key in exactly one header `Authorization: Bearer KEY`"
            + (", or as the password in the URL: http://x:KEY@host" if basic else "")
        )
    return keys.caller(sent)


def _check_permitted(caller: Caller, need: Need) -> None:
    """Raises ForbiddenError unless the caller has the permission that a route requires."""
    if need == "any key":
        return
    if need == "calibrate or label":
        caller.check_may_label()
        return
    if need == "key" and caller.only_labels:
        raise ForbiddenError(
            f"the key {caller.name!r} can only label: this route needs a key with another role, "
            f"or without a role"
        )
    if need != "key" and need not in caller.roles:
        raise ForbiddenError(
            f"the key {caller.name!r} does not have the role {need!r}, which this route needs: "
            "`scope-judge keys list` shows its roles"
        )


def _match(scope: Scope) -> tuple[Any, Need, frozenset[str] | None]:
    """The route, None if the path is unknown; its need; and its methods if this one is none.

    The routes are the router's own, so that both always agree.
    """
    nearest: Any = None
    allowed: set[str] = set()
    route: Any
    for route in scope["app"].routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            # Nobody may call a route that is missing in NEEDS.
            return route, NEEDS.get((method, route.path), "nobody"), None
        if match is Match.PARTIAL:
            nearest = nearest or route
            allowed |= route.methods
    # Unknown paths and methods need a key, too, so that strangers cannot find out which exist.
    return nearest, "key", None if nearest is None else frozenset(allowed)


def _sent_key(scope: Scope, *, basic: bool) -> bytes | None:
    """The key of the only Authorization header, with `basic` also as a password; else None."""
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(sent) != 1:
        return None
    scheme, _, key = sent[0].partition(b" ")
    if basic and scheme.lower() == b"basic":
        key = _password(key)
    elif scheme.lower() != b"bearer":
        return None
    return key.strip() or None


def _password(credentials: bytes) -> bytes:
    """The password of HTTP Basic; empty if there is none."""
    try:
        decoded = base64.b64decode(credentials.strip(), validate=True)
    except binascii.Error:
        return b""
    return decoded.partition(b":")[2]


def _headers(error: ScopeJudgeError, scope: Scope) -> dict[str, str] | None:
    if not isinstance(error, UnauthenticatedError):
        return None
    # The challenge never names Basic: a browser would ask for a password, and send it with every
    # later request, also with those that another site causes.
    sent = _sent_key(scope, basic=scope["path"] in TAKES_BASIC)
    wrong = ', error="invalid_token"' if sent is not None else ""
    return {"WWW-Authenticate": f'Bearer realm="scope-judge"{wrong}'}
