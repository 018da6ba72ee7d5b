"""GET /healthz, /readyz, /metrics, /info and /usage."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from app import __version__
from app.api.problems import PROBLEMS
from app.api.routing import JsonRequest, JsonRoute, as_json, made
from app.core.assessment import advice_on_unanimous
from app.core.errors import DrainingError
from app.flow import off_loop
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.release import COMMIT
from scope_judge import records

# Pairs from which on the share of unanimous ones leads to advice.
_FEWEST_PAIRS = 50
# Fields with which a kind of judge describes itself; each is None for a kind without it.
_OF_KIND = ("kind", "model", "dtype", "label_tokens", "prefill", "template", "head_dtype")

router = APIRouter(tags=["operations"], route_class=JsonRoute, responses=PROBLEMS)


@router.get("/healthz", response_model_exclude_none=True)
async def healthz() -> records.ServiceStatus:
    """Returns 200 while the process runs."""
    return records.ServiceStatus(status="ok")


@router.get("/readyz", response_model_exclude_none=True)
async def readyz(request: JsonRequest) -> records.ServiceStatus:
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
    return records.ServiceStatus(status="degraded" if trouble else "ready", detail=trouble)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: JsonRequest) -> Response:
    """Shows the Prometheus metrics, with the names of up to 100 calibration sets."""
    request.caller.check_all_calibrations()
    content, content_type = await off_loop(request.services.telemetry.exposition)
    return Response(content, media_type=content_type)


@router.get("/info", response_model=records.Info)
async def info(request: JsonRequest) -> Response:
    """Shows the judge, its fingerprint, the limits and the version."""
    return as_json(partial(_info, request.services, caller=request.caller.name))


@router.get("/usage", response_model=records.Usage)
async def usage(request: JsonRequest) -> Response:
    """Shows the use of your key, or to an admin of all keys, since this replica started."""
    only = None if "admin" in request.caller.roles else request.caller.name
    return as_json(partial(_usage, request.services.telemetry, only=only))


def _info(services: Services, *, caller: str) -> records.Info:
    """Describes a running service to a caller of that name."""
    identity, defaults = services.identity, services.defaults
    described: dict[str, Any] = dict(identity.described)
    server = described.get("decision_server")
    return made(
        records.Info,
        identity,
        **{name: described.get(name) for name in _OF_KIND},
        version=__version__,
        commit=COMMIT,
        judge=identity.name,
        scoring=_scoring(services),
        decision_server=server
        and records.DecisionServer(**{**server, "hosts": tuple(server["hosts"])}),
        rungs=tuple(records.JudgeOfCascade(**rung) for rung in described.get("rungs") or ())
        or None,
        default_alpha=defaults.alpha,
        default_guarantee=defaults.guarantee,
        default_delta=defaults.delta,
        min_label_mass=services.calibrations.min_label_mass,
        on_alarm=services.monitor.on_alarm,
        audit_rate=services.auditor.rate,
        limits=services.limits,
        caller=caller,
    )


def _scoring(services: Services) -> records.Scoring | None:
    described: Any = services.identity.described.get("scoring")
    if described is None:
        return None
    scoring = {**described, "left_out": tuple(described["left_out"])}
    if scoring["kind"] == "votes" and (pairs := services.telemetry.voted_pairs):
        share = services.telemetry.unanimous_pairs / pairs
        # A few pairs say nothing about a share.
        advice = advice_on_unanimous(share) if pairs >= _FEWEST_PAIRS else None
        scoring |= {"unanimous": share, "advice": advice}
    return records.Scoring(**scoring)


def _usage(telemetry: Telemetry, *, only: str | None) -> records.Usage:
    """The use of all keys, or of `only` one."""
    used = telemetry.uses()
    return records.Usage(
        since=telemetry.since.isoformat().replace("+00:00", "Z"),
        keys=tuple(
            records.KeyUsage(key=key, **used[key])
            for key in (sorted(used) if only is None else [only])
        ),
    )
