"""The FastAPI application: routes, errors and the gate around them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.responses import JSONResponse

from app import __version__
from app.api import document, problems
from app.api.access import Authentication
from app.api.desk import routes as desk
from app.api.document import DocumentedApplication
from app.api.keys import Keys
from app.api.middleware import Gate, Observation, Prefix
from app.api.routes import audits as auditing
from app.api.routes import calibrations as calibrating
from app.api.routes import cascades, decisions, operations, rewards
from app.api.routes import judge as judging
from app.flow import off_loop
from app.judging.services import Services
from app.observability import logs
from app.settings import Settings

_DESCRIPTION = (
    'A judge of two responses that answers "A", "B" or "abstain". Accepted verdicts are wrong at '
    "most a chosen share alpha of the time."
)


def create_application(
    settings: Settings,
    open_services: Callable[[], AbstractAsyncContextManager[Services]],
    *,
    keys: Keys | None,
) -> FastAPI:
    """Builds the application.

    Args:
        open_services: Opens the services when the application starts, closes them when it stops.
        keys: The accepted keys; None to accept requests from this machine without a key.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Made and written now, because FastAPI would do that on the event loop in each request.
        app.state.openapi = await off_loop(lambda: bytes(JSONResponse(app.openapi()).body))
        try:
            async with open_services() as services:
                app.state.services = services
                yield
        finally:
            logs.finish()

    app = DocumentedApplication(
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
    app.add_middleware(Authentication, keys=keys, metrics_port=settings.metrics_port)
    app.add_middleware(Observation)
    if settings.root_path:
        app.add_middleware(Prefix, prefix=settings.root_path)
    problems.install(app)
    # All applications of a process share the routes: `include_router` would analyze each of them
    # again, which takes 40 ms.
    for module in (
        *(judging, rewards, decisions, calibrating, cascades, auditing, operations),
        *(document, desk),
    ):
        app.router.routes.extend(module.router.routes)
    return app


def drain(app: FastAPI) -> None:
    """Makes /readyz fail and every answer close its connection, because the service stops soon."""
    app.state.draining = True
