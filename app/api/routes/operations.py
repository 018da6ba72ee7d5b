"""GET /healthz, /readyz, /metrics and /info."""

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from app import __version__
from app.api.dependencies import Calling, Running
from app.api.documented import ENGINE, KEYED, STORE, problems
from app.core.errors import DrainingError, KeysUnavailableError, RouteNotFoundError
from app.service.off_loop import off_loop
from app.wire.answers import InfoOut, StatusOut

router = APIRouter(tags=["operations"])

# What one reading of the metrics may take for thresholds; the next one goes on.
_FIND_S = 1.0


@router.get("/healthz", response_model_exclude_none=True, responses=problems())
async def healthz() -> StatusOut:
    """Answers as long as the process does."""
    return StatusOut(status="ok")


@router.get(
    "/readyz",
    response_model_exclude_none=True,
    responses=problems(*ENGINE, *STORE, KeysUnavailableError),
)
async def readyz(request: Request, services: Running) -> StatusOut:
    """Answers 200 only when the service can judge: it judges a pair, and reads the store.

    "degraded" is ready, too: judging goes on with the thresholds in memory while the store is gone.
    """
    if request.app.state.draining:
        raise DrainingError("the service is being stopped")
    if request.app.state.keys is not None:
        request.app.state.keys.check()
    trouble = await services.readiness.check()
    return StatusOut(status="degraded" if trouble else "ready", detail=trouble)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=problems(*KEYED, RouteNotFoundError),
)
async def metrics(services: Running, caller: Calling) -> Response:
    """Prometheus metrics; they name every calibration set."""
    caller.check_all_calibrations()
    await services.calibrations.find_shown_thresholds(within_s=_FIND_S)
    content, content_type = await off_loop(services.telemetry.exposition)
    return Response(content, media_type=content_type)


@router.get("/info", responses=problems(*KEYED))
async def info(services: Running) -> InfoOut:
    """The judge, its fingerprint, the limits and the version."""
    return InfoOut.of(services, __version__)
