"""Takes the prefix of a proxy off the path of each request."""

from starlette.types import ASGIApp, Receive, Scope, Send


class Prefix:
    """Lets a proxy pass requests on with the prefix under which it shows the service.

    A request without the prefix comes from a proxy that takes it off, or from this machine.

    Args:
        app: The application.
        prefix: The prefix, such as `/judge-a`.
    """

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection of any type."""
        if scope["type"] == "http" and scope["path"].startswith(f"{self._prefix}/"):
            path = scope["path"].removeprefix(self._prefix)
            raw = scope.get("raw_path", b"").removeprefix(self._prefix.encode())
            scope = {**scope, "path": path, "raw_path": raw}
        await self._app(scope, receive, send)
