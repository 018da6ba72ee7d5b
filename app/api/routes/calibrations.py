"""POST /calibrate, and the routes below /calibrations: list, show, delete, versions, rollback."""

from functools import partial
from operator import itemgetter
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Query, Response

from app.api.dependencies import CurrentCaller, CurrentServices, check_batch_size
from app.api.error_responses import (
    ACCESS_ERRORS,
    ENGINE_ERRORS,
    KEY_ERRORS,
    STORE_ERRORS,
    error_responses,
)
from app.api.offloading import MANY_ITEMS, OffloadingRequest, OffloadingRoute, json_response
from app.core.comparison import LabelledComparison
from app.core.errors import (
    BatchTooLargeError,
    CalibrationNotFoundError,
    JudgeMismatchError,
    RequestError,
    ScopeJudgeError,
    VersionNotFoundError,
)
from app.wire.calibrations import (
    CalibrateOut,
    CalibrationDetailOut,
    CalibrationListOut,
    CalibrationOut,
    ExampleErrorOut,
    VersionsOut,
)
from app.wire.problems import problem_of
from app.wire.requests import (
    CalibrateIn,
    CalibrationName,
    ExampleIn,
    InvalidItem,
    RollbackIn,
    VersionNumber,
)

router = APIRouter(tags=["calibrating"], route_class=OffloadingRoute)

Name = Annotated[CalibrationName, Path(description="The calibration set.")]
_OF_ONE = error_responses(*ACCESS_ERRORS, *STORE_ERRORS, CalibrationNotFoundError)


@router.post(
    "/calibrate",
    response_model=CalibrateOut,
    responses=error_responses(
        *ACCESS_ERRORS, *STORE_ERRORS, *ENGINE_ERRORS, BatchTooLargeError, JudgeMismatchError
    ),
)
async def calibrate(
    body: CalibrateIn, request: OffloadingRequest, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Adds a labelled batch to a calibration set in one new version."""
    caller.check_calibration(body.calibration)
    check_batch_size(len(body.examples), services)
    items, read, failed = await request.run(_read_all, body)
    with services.admission.admit(len(read)):
        report = await services.calibrator.add(
            body.calibration,
            list(read.values()),
            label_noise=body.label_noise,
            by=caller.name,
            unread=len(failed),
        )

    def answer() -> CalibrateOut:
        places = list(read)
        # Indexes in the report count only the examples that could be parsed.
        both = failed + [(places[i], error) for i, error in report.failed]
        errors = [
            ExampleErrorOut(index=i, id=items[i].id, error=problem_of(error))
            for i, error in sorted(both, key=itemgetter(0))
        ]
        return CalibrateOut.of(report, errors)

    return await json_response(answer, many=True)


class _Examples(NamedTuple):
    """The examples of a batch.

    Args:
        items: All examples, in order.
        read: Index -> example, for those that can be judged.
        failed: (index, error) of all others.
    """

    items: list[ExampleIn | InvalidItem]
    read: dict[int, LabelledComparison]
    failed: list[tuple[int, ScopeJudgeError]]


def _read_all(body: CalibrateIn) -> _Examples:
    found = _Examples(body.items(), {}, [])
    for i, example in enumerate(found.items):
        if isinstance(example, InvalidItem):
            found.failed.append((i, example.error))
            continue
        try:
            found.read[i] = example.labelled()
        except RequestError as exc:
            found.failed.append((i, exc))
    return found


@router.get(
    "/calibrations",
    response_model=CalibrationListOut,
    responses=error_responses(*KEY_ERRORS, *STORE_ERRORS),
)
async def list_calibrations(services: CurrentServices, caller: CurrentCaller) -> Response:
    """Lists every calibration set that the caller may use, with its thresholds."""
    found = [each for each in await services.calibrations.all() if caller.may_use(each.name)]
    await services.calibrations.find_thresholds(found)
    return await json_response(partial(CalibrationListOut.of, found), many=True)


@router.get("/calibrations/{name}", response_model=CalibrationDetailOut, responses=_OF_ONE)
async def get_calibration(name: Name, services: CurrentServices, caller: CurrentCaller) -> Response:
    """Shows one calibration set with its thresholds and its risk-coverage curve."""
    caller.check_calibration(name)
    calibration = await services.calibrations.get(name)
    traffic = services.calibrations.drift.figures(calibration)
    return await json_response(partial(CalibrationDetailOut.of, calibration, traffic), many=True)


@router.delete("/calibrations/{name}", status_code=204, responses=_OF_ONE)
async def delete_calibration(name: Name, services: CurrentServices, caller: CurrentCaller) -> None:
    """Deletes a calibration set; its versions are kept, so a rollback can restore it."""
    caller.check_calibration(name)
    await services.calibrator.delete(name, by=caller.name)


@router.get("/calibrations/{name}/versions", response_model=VersionsOut, responses=_OF_ONE)
async def list_versions(
    name: Name,
    services: CurrentServices,
    caller: CurrentCaller,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most versions to list.")] = 100,
    before: Annotated[
        VersionNumber | None, Query(description="Only versions below this one.")
    ] = None,
) -> Response:
    """Lists the changes of a calibration set, newest first: by whom, when, with which batch."""
    caller.check_calibration(name)
    records = await services.calibrator.versions(name, before=before, limit=limit)
    return await json_response(
        partial(VersionsOut.of, name, records), many=len(records) > MANY_ITEMS
    )


@router.post(
    "/calibrations/{name}/rollback",
    response_model=CalibrationOut,
    responses=error_responses(
        *(
            *ACCESS_ERRORS,
            *STORE_ERRORS,
            CalibrationNotFoundError,
            VersionNotFoundError,
            JudgeMismatchError,
        )
    ),
)
async def roll_back(
    name: Name, body: RollbackIn, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Restores an earlier version of a calibration set as a new version."""
    caller.check_calibration(name)
    calibration = await services.calibrator.rollback(name, body.version, by=caller.name)
    return await json_response(partial(CalibrationOut.of_set, calibration), many=True)
