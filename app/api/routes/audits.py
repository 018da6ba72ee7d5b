"""The routes of audits: drawn judgments, their labels, and their way into a calibration set."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.api.dependencies import CurrentCaller, CurrentServices
from app.api.error_responses import ACCESS_ERRORS, STORE_ERRORS, error_responses
from app.api.offloading import MANY_ITEMS, OffloadingRequest, OffloadingRoute, json_response
from app.core.errors import AuditsIncompleteError, CalibrationNotFoundError, JudgeMismatchError
from app.service.auditing.ledger import Status
from app.wire.audits import (
    MOST_LABELS,
    AbsorbIn,
    AbsorbOut,
    AuditLabelsIn,
    AuditLabelsOut,
    AuditsOut,
)
from app.wire.requests import CalibrationName

router = APIRouter(tags=["auditing"], route_class=OffloadingRoute)


@router.get(
    "/audits",
    response_model=AuditsOut,
    responses=error_responses(*ACCESS_ERRORS, *STORE_ERRORS),
)
async def list_audits(
    services: CurrentServices,
    caller: CurrentCaller,
    calibration: Annotated[
        CalibrationName | None, Query(description="Only audits of this calibration set.")
    ] = None,
    status: Annotated[Status | None, Query(description="Only audits with this status.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LABELS, description="Most audits to list.")] = 100,
    after: Annotated[
        int, Query(ge=0, le=2**53 - 1, description="`next_after` of the page before.")
    ] = 0,
) -> Response:
    """Lists drawn judgments, oldest first; texts and verdicts are not shown."""
    if calibration is not None:
        caller.check_calibration(calibration)
    page = await services.auditor.page(
        calibration=calibration,
        status=status,
        after=after,
        limit=limit,
        may_use=caller.may_use,
    )
    return await json_response(
        partial(AuditsOut.of, page, expires_s=services.auditor.expires_s),
        many=len(page.draws) > MANY_ITEMS,
    )


@router.post(
    "/audits/labels",
    response_model=AuditLabelsOut,
    responses=error_responses(*ACCESS_ERRORS, *STORE_ERRORS),
)
async def label_audits(
    body: AuditLabelsIn,
    request: OffloadingRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> AuditLabelsOut:
    """Takes labels of drawn judgments, all in one step; a later label replaces an earlier one."""
    report = await services.auditor.label(
        [(each.id, each.label) for each in body.labels], by=caller.name, may_use=caller.may_use
    )
    return AuditLabelsOut.of(report)


@router.post(
    "/calibrations/{name}/absorb",
    response_model=AbsorbOut,
    responses=error_responses(
        *(
            *ACCESS_ERRORS,
            *STORE_ERRORS,
            CalibrationNotFoundError,
            JudgeMismatchError,
            AuditsIncompleteError,
        )
    ),
)
async def absorb(
    name: Annotated[CalibrationName, Path(description="The calibration set.")],
    body: AbsorbIn,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Makes labelled audits examples of a calibration set, in one new version."""
    caller.check_calibration(name)
    report = await services.absorber.absorb(
        name,
        period=body.period,
        replace=body.replace,
        leave_out=body.unlabelled == "leave_out",
        by=caller.name,
    )
    return await json_response(partial(AbsorbOut.of, report), many=True)
