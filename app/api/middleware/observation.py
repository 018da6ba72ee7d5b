"""The outermost middleware: measures every request, also refused ones."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth.needs import NEEDS
from app.service.services import Services

# Label of requests for unknown paths, and of requests that were refused before routing.
_NO_ROUTE = "none"
_PATHS = frozenset(path for _, path in NEEDS)


class Observation:
    """Counts requests by route and status."""

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

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            # Without a status nothing was sent, because the client has left.
            if status:
                seconds = time.perf_counter() - begun
                services.telemetry.observe_request(route_of(scope), status, seconds)


def route_of(scope: Scope) -> str:
    """The declared path of a request's route, or "none"; a closed set of values."""
    route = scope.get("route")
    path = getattr(route, "path", scope["path"])
    return path if path in _PATHS else _NO_ROUTE
