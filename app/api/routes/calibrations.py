"""POST /calibrate, and the calibration sets: list, look at, remove, and their past versions."""

from functools import partial
from operator import itemgetter
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Query, Response

from app.api.dependencies import Calling, Running, check_batch_size
from app.api.documented import ENGINE, GUARDED, KEYED, STORE, problems
from app.api.sized_requests import MANY, SizedRequest, SizedRoute, answer_of
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

router = APIRouter(tags=["calibrating"], route_class=SizedRoute)

Name = Annotated[CalibrationName, Path(description="The calibration set.")]
_OF_ONE = problems(*GUARDED, *STORE, CalibrationNotFoundError)


@router.post(
    "/calibrate",
    response_model=CalibrateOut,
    responses=problems(*GUARDED, *STORE, *ENGINE, BatchTooLargeError, JudgeMismatchError),
)
async def calibrate(
    body: CalibrateIn, request: SizedRequest, services: Running, caller: Calling
) -> Response:
    """Adds a labelled batch to a calibration set: all of it in one version, or nothing."""
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
        # The report counts places among the examples that could be read.
        both = failed + [(places[i], error) for i, error in report.failed]
        errors = [
            ExampleErrorOut(index=i, id=items[i].id, error=problem_of(error))
            for i, error in sorted(both, key=itemgetter(0))
        ]
        return CalibrateOut.of(report, errors)

    return await answer_of(answer, many=True)


class _Examples(NamedTuple):
    """The examples of a batch; those that can be read, and what is wrong with the others."""

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


@router.get("/calibrations", response_model=CalibrationListOut, responses=problems(*KEYED, *STORE))
async def list_calibrations(services: Running, caller: Calling) -> Response:
    """Lists every calibration set that the caller may touch, with its thresholds."""
    found = [each for each in await services.calibrations.all() if caller.may_use(each.name)]
    await services.calibrations.find_thresholds(found)
    return await answer_of(partial(CalibrationListOut.of, found), many=True)


@router.get("/calibrations/{name}", response_model=CalibrationDetailOut, responses=_OF_ONE)
async def get_calibration(name: Name, services: Running, caller: Calling) -> Response:
    """Shows one calibration set with its thresholds and its risk-coverage curve."""
    caller.check_calibration(name)
    calibration = await services.calibrations.get(name)
    traffic = services.calibrations.drift.figures(calibration)
    return await answer_of(partial(CalibrationDetailOut.of, calibration, traffic), many=True)


@router.delete("/calibrations/{name}", status_code=204, responses=_OF_ONE)
async def delete_calibration(name: Name, services: Running, caller: Calling) -> None:
    """Removes a calibration set; its versions are kept, and a rollback makes it again."""
    caller.check_calibration(name)
    await services.calibrator.delete(name, by=caller.name)


@router.get("/calibrations/{name}/versions", response_model=VersionsOut, responses=_OF_ONE)
async def list_versions(
    name: Name,
    services: Running,
    caller: Calling,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
    before: Annotated[
        VersionNumber | None, Query(description="Only versions below this one.")
    ] = None,
) -> Response:
    """Tells who changed a calibration set, when and with what batch, newest first."""
    caller.check_calibration(name)
    records = await services.calibrator.versions(name, before=before, limit=limit)
    return await answer_of(partial(VersionsOut.of, name, records), many=len(records) > MANY)


@router.post(
    "/calibrations/{name}/rollback",
    response_model=CalibrationOut,
    responses=problems(
        *(*GUARDED, *STORE, CalibrationNotFoundError, VersionNotFoundError, JudgeMismatchError)
    ),
)
async def roll_back(name: Name, body: RollbackIn, services: Running, caller: Calling) -> Response:
    """Makes a calibration set what it was at an earlier version, as a new version."""
    caller.check_calibration(name)
    calibration = await services.calibrator.rollback(name, body.version, by=caller.name)
    return await answer_of(partial(CalibrationOut.of_set, calibration), many=True)
