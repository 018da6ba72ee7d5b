"""The outermost middleware: measures and logs every request, also refused ones."""

import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth.callers import CALLER_KEY
from app.api.auth.needs import NEEDS
from app.judging.services import Services
from app.observability.logs import log_access

# Label of requests for unknown paths, and of requests that were refused before routing.
_NO_ROUTE = "none"
_PATHS = frozenset(path for _, path in NEEDS)


# The id of a request in the log: the caller's, or a new one, which the answer has, too.
_REQUEST_ID = b"x-request-id"
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Observation:
    """Counts and logs requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type; only HTTP requests are observed."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        begun = time.perf_counter()
        status = 0
        sent = next((value for name, value in scope["headers"] if name == _REQUEST_ID), b"")
        request = sent if _PLAIN_ID.fullmatch(sent) else secrets.token_hex(8).encode()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_REQUEST_ID, request)]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            # Without a status nothing was sent, because the client has left.
            if status:
                seconds = time.perf_counter() - begun
                host, port = scope.get("client") or ("", 0)
                caller = scope.get(CALLER_KEY)
                log_access(
                    scope["method"],
                    scope["path"],
                    status,
                    client=f"{host}:{port}",
                    key=None if caller is None else caller.name,
                    request=request.decode(),
                    ms=1000 * seconds,
                )
                services.telemetry.request_seconds.labels(
                    route_of(scope), f"{status // 100}xx"
                ).observe(seconds)


def route_of(scope: Scope) -> str:
    """The declared path of a request's route, or "none"; a closed set of values."""
    route = scope.get("route")
    path = getattr(route, "path", scope["path"])
    return path if path in _PATHS else _NO_ROUTE
