"""GET /healthz, /readyz, /metrics, /info and /usage."""

from functools import partial

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from app.api.answers import info as about
from app.api.problems import PROBLEMS
from app.api.routing import JsonRequest, JsonRoute, as_json
from app.core.errors import DrainingError
from app.flow import off_loop
from scope_judge.records import Info, ServiceStatus, Usage

router = APIRouter(tags=["operations"], route_class=JsonRoute, responses=PROBLEMS)


@router.get("/healthz", response_model_exclude_none=True)
async def healthz() -> ServiceStatus:
    """Returns 200 while the process runs."""
    return ServiceStatus(status="ok")


@router.get("/readyz", response_model_exclude_none=True)
async def readyz(request: JsonRequest) -> ServiceStatus:
    """Returns 200 if the service can judge, within about a second even when it is busy.

    The judge has answered a prompt in the last second, or answers a probe ahead of its queue.
    "degraded" is also 200: the store does not answer, and judging continues with known thresholds;
    or the store has lost a set, and only requests with this set fail.
    """
    if request.app.state.draining:
        raise DrainingError("the service is shutting down")
    if request.app.state.keys is not None:
        request.app.state.keys.check()
    trouble = await request.services.readiness.check()
    return ServiceStatus(status="degraded" if trouble else "ready", detail=trouble)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: JsonRequest) -> Response:
    """Shows the Prometheus metrics, with the names of up to 100 calibration sets."""
    request.caller.check_all_calibrations()
    content, content_type = await off_loop(request.services.telemetry.exposition)
    return Response(content, media_type=content_type)


@router.get("/info", response_model=Info)
async def info(request: JsonRequest) -> Response:
    """Shows the judge, its fingerprint, the limits and the version."""
    return as_json(partial(about.info, request.services, caller=request.caller.name))


@router.get("/usage", response_model=Usage)
async def usage(request: JsonRequest) -> Response:
    """Shows the use of your key, or to an admin of all keys, since this replica started."""
    only = None if "admin" in request.caller.roles else request.caller.name
    return as_json(partial(about.usage_of, request.services.telemetry, only=only))
