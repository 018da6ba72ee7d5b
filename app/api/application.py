"""The FastAPI application: routes, errors and the gate around them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

from fastapi import FastAPI
from starlette.responses import JSONResponse

from app import __version__
from app.api import problems
from app.api.access import Authentication
from app.api.desk import routes as desk_routes
from app.api.document import describe_answers
from app.api.keys import Keys
from app.api.middleware import Gate, Observation, Prefix
from app.api.routes import audits as auditing
from app.api.routes import calibrations as calibrating
from app.api.routes import cascades, decisions, docs, operations, pools, rewards
from app.api.routes import judge as judging
from app.judging.services import Services
from app.off_loop import off_loop
from app.settings import Settings

_DESCRIPTION = (
    'A judge of two responses that answers "A", "B" or "abstain". Accepted verdicts are wrong at '
    "most a chosen share alpha of the time."
)


class _Application(FastAPI):
    # Shared by all applications of a process, because making it takes 0.1 s.
    _document: ClassVar[dict[str, Any] | None] = None

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, with the security scheme of a service with a key file."""
        if _Application._document is None:
            _Application._document = self._made_document()
        return _Application._document

    def _made_document(self) -> dict[str, Any]:
        document = super().openapi()
        description = "Required if the service has a key file."
        key = {"type": "http", "scheme": "bearer", "description": description}
        document["components"]["securitySchemes"] = {"key": key}
        document["security"] = [{}, {"key": []}]
        describe_answers(document["components"]["schemas"])
        return document


def create_application(
    open_services: Callable[[], AbstractAsyncContextManager[Services]],
    settings: Settings,
    *,
    keys: Keys | None,
) -> FastAPI:
    """Builds the application.

    Args:
        open_services: Opens the services when the application starts, closes them when it stops.
        settings: The settings, of which those of HTTP are used.
        keys: The accepted keys; None to accept requests from this machine without a key.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Made and written now, because FastAPI would do that on the event loop in each request.
        app.state.openapi = await off_loop(lambda: bytes(JSONResponse(app.openapi()).body))
        async with open_services() as services:
            app.state.services = services
            yield

    app = _Application(
        title="scope-judge",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.draining = False
    app.state.keys = keys
    app.add_middleware(Gate, max_body_bytes=settings.max_body_bytes, timeout_s=settings.timeout_s)
    # Middleware that is added later runs earlier: authentication comes before any body is read.
    app.add_middleware(
        Authentication,
        keys=keys,
        metrics=settings.metrics,
        metrics_port=settings.metrics_port,
    )
    app.add_middleware(Observation)
    if settings.root_path:
        app.add_middleware(Prefix, prefix=settings.root_path)
    problems.install(app)
    # All applications of a process share the routes: `include_router` would analyze each of them
    # again, which takes 40 ms.
    for routes in (
        judging,
        rewards,
        decisions,
        calibrating,
        pools,
        cascades,
        auditing,
        operations,
        docs,
    ):
        app.router.routes.extend(routes.router.routes)
    app.router.routes.extend(desk_routes.router.routes)
    return app


def drain(app: FastAPI) -> None:
    """Makes /readyz fail and every answer close its connection, because the service stops soon."""
    app.state.draining = True
