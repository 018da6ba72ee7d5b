"""What stands outermost: every request is timed and traced, whatever becomes of it."""

import time
from contextlib import nullcontext

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth.needs import NEEDS
from app.service.services import Services
from app.tracing import note_answer

# Refused before a route was looked for, or asked for what there is not.
_NO_ROUTE = "none"
_PATHS = frozenset(path for _, path in NEEDS)


class Observation:
    """Counts requests by route and status, and makes the span of each.

    Args:
        app: What it stands before.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection of any kind; only HTTP requests are observed."""
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

        tracing, method = services.tracing, scope["method"]
        with tracing.request(method, Headers(scope=scope)) if tracing else nullcontext() as span:
            try:
                await self._app(scope, receive, note)
            finally:
                route = route_of(scope)
                if span is not None:
                    note_answer(span, method, route, status)
                # Without a status the client has left, and waits for none.
                if status:
                    seconds = time.perf_counter() - begun
                    services.telemetry.observe_request(route, status, seconds)


def route_of(scope: Scope) -> str:
    """The path of a request's route as it was declared; a closed set."""
    route = scope.get("route")
    path = getattr(route, "path", scope["path"])
    return path if path in _PATHS else _NO_ROUTE
