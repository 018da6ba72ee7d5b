"""POST /calibrate, and the calibration sets: list, look at, remove, and their past versions."""

import asyncio
from operator import itemgetter
from typing import Annotated

from fastapi import APIRouter, Path, Query

from app.api.answers import (
    CalibrateOut,
    CalibrationDetailOut,
    CalibrationListOut,
    CalibrationOut,
    ExampleErrorOut,
    VersionsOut,
    calibration_fields,
)
from app.api.dependencies import Calling, Running, check_batch_size
from app.api.documented import ENGINE, GUARDED, KEYED, STORE, problems
from app.api.errors import problem_of
from app.api.schemas import CalibrateIn, CalibrationName, InvalidItem, RollbackIn, VersionNumber
from app.core.comparison import LabelledComparison
from app.core.errors import (
    BatchTooLargeError,
    CalibrationNotFoundError,
    JudgeMismatchError,
    RequestError,
    ScopeJudgeError,
    VersionNotFoundError,
)

router = APIRouter(tags=["calibrating"])

Name = Annotated[CalibrationName, Path(description="The calibration set.")]
_OF_ONE = problems(*GUARDED, *STORE, CalibrationNotFoundError)


@router.post(
    "/calibrate",
    responses=problems(*GUARDED, *STORE, *ENGINE, BatchTooLargeError, JudgeMismatchError),
)
async def calibrate(body: CalibrateIn, services: Running, caller: Calling) -> CalibrateOut:
    """Adds a labelled batch to a calibration set: all of it in one version, or nothing."""
    caller.check_calibration(body.calibration)
    check_batch_size(len(body.examples), services)
    items = body.items()
    read: dict[int, LabelledComparison] = {}
    failed: list[tuple[int, ScopeJudgeError]] = []
    for i, example in enumerate(items):
        if isinstance(example, InvalidItem):
            failed.append((i, example.error))
            continue
        try:
            read[i] = example.labelled()
        except RequestError as exc:
            failed.append((i, exc))
    with services.admission.admit(len(read)):
        report = await services.calibrator.add(
            body.calibration,
            list(read.values()),
            label_noise=body.label_noise,
            by=caller.name,
            unread=len(failed),
        )
    places = list(read)
    # The report counts places among the examples that could be read.
    failed += [(places[i], error) for i, error in report.failed]
    errors = [
        ExampleErrorOut(index=i, id=items[i].id, error=problem_of(error))
        for i, error in sorted(failed, key=itemgetter(0))
    ]
    return CalibrateOut.of(report, errors)


@router.get("/calibrations", responses=problems(*KEYED, *STORE))
async def list_calibrations(services: Running, caller: Calling) -> CalibrationListOut:
    """Lists every calibration set that the caller may touch, with its thresholds."""
    found = [each for each in await services.calibrations.all() if caller.may_use(each.name)]
    fields = await asyncio.to_thread(lambda: [calibration_fields(each) for each in found])
    return CalibrationListOut(calibrations=[CalibrationOut(**each) for each in fields])


@router.get("/calibrations/{name}", responses=_OF_ONE)
async def get_calibration(name: Name, services: Running, caller: Calling) -> CalibrationDetailOut:
    """Shows one calibration set with its thresholds and its risk-coverage curve."""
    caller.check_calibration(name)
    calibration = await services.calibrations.get(name)
    traffic = services.calibrations.drift.figures(calibration)
    # Off the event loop: what would make an alpha feasible takes a moment to find out.
    return await asyncio.to_thread(CalibrationDetailOut.of, calibration, traffic)


@router.delete("/calibrations/{name}", status_code=204, responses=_OF_ONE)
async def delete_calibration(name: Name, services: Running, caller: Calling) -> None:
    """Removes a calibration set; its versions are kept, and a rollback makes it again."""
    caller.check_calibration(name)
    await services.calibrator.delete(name, by=caller.name)


@router.get("/calibrations/{name}/versions", responses=_OF_ONE)
async def list_versions(
    name: Name,
    services: Running,
    caller: Calling,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
    before: Annotated[
        VersionNumber | None, Query(description="Only versions below this one.")
    ] = None,
) -> VersionsOut:
    """Tells who changed a calibration set, when and with what batch, newest first."""
    caller.check_calibration(name)
    records = await services.calibrator.versions(name, before=before, limit=limit)
    return VersionsOut.of(name, records)


@router.post(
    "/calibrations/{name}/rollback",
    responses=problems(
        *(*GUARDED, *STORE, CalibrationNotFoundError, VersionNotFoundError, JudgeMismatchError)
    ),
)
async def roll_back(
    name: Name, body: RollbackIn, services: Running, caller: Calling
) -> CalibrationOut:
    """Makes a calibration set what it was at an earlier version, as a new version."""
    caller.check_calibration(name)
    calibration = await services.calibrator.rollback(name, body.version, by=caller.name)
    return CalibrationOut(**await asyncio.to_thread(calibration_fields, calibration))
