"""The routes below /calibrate and /calibrations."""

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.answers.making import as_json
from app.api.answers.monitor import monitor
from app.api.answers.sets import (
    calibration_detail,
    calibration_of,
    calibration_report,
    change_of,
    deletion,
    example_page,
    scores,
)
from app.api.inputs import (
    CurrentCaller,
    CurrentServices,
    JsonRequest,
    JsonRoute,
    SetName,
    check_batch_size,
)
from app.api.problems import PROBLEMS
from app.api.requests.models import (
    AlphasQuery,
    CalibrateIn,
    DeletionQuery,
    Digest,
    ExampleIn,
    LabeledBatchIn,
    PostedItems,
    RollbackIn,
    VersionNumber,
)
from app.api.requests.scored_examples import ImportIn
from app.core.comparison import LabeledComparison
from app.off_loop import off_loop
from scope_judge.records import (
    Calibration,
    CalibrationChange,
    CalibrationDetail,
    CalibrationPage,
    CalibrationReport,
    Deletion,
    ExamplePage,
    Monitor,
    Scores,
    Versions,
)

router = APIRouter(tags=["calibrating"], route_class=JsonRoute, responses=PROBLEMS)

# About 2 MB of JSON.
LARGEST_PAGE = 10_000


@router.post("/calibrate", response_model=CalibrationReport)
async def calibrate(
    body: CalibrateIn, request: JsonRequest, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Judges labeled examples and adds them to a set, as one new version.

    `dry_run` judges, too. To judge only once, send the examples to POST /calibrate/scores and the
    scores to POST /calibrations/{name}/examples.
    """
    caller.check_calibration(body.calibration)
    check_batch_size(len(body.examples), services)
    examples = await request.run(_read_all, body)
    async with services.admission.admit(len(examples.read)):
        batch = await services.calibrator.judged(
            body.calibration,
            examples.read,
            unread=examples.unread,
            replaces=body.replace,
            change_labels=body.change_labels,
        )
        change = await services.changes.take(
            body.calibration,
            batch,
            by=caller.name,
            dry_run=body.dry_run,
            even_if_infeasible=body.even_if_infeasible,
        )
    errors = examples.errors(change.failed)
    return await off_loop(
        as_json, partial(calibration_report, change, errors, dry_run=body.dry_run)
    )


@router.post("/calibrate/scores", response_model=Scores)
async def score(
    body: LabeledBatchIn,
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Judges labeled examples and returns their scores. No set changes."""
    caller.check_calibration(body.calibration)
    check_batch_size(len(body.examples), services)
    examples = await request.run(_read_all, body)
    async with services.admission.admit(len(examples.read)):
        batch = await services.calibrator.judged(body.calibration, examples.read, adds=False)
    return await request.run(
        as_json, lambda: scores(services.identity.name, batch, examples.errors(batch.errors))
    )


def _read_all(body: LabeledBatchIn) -> PostedItems[LabeledComparison]:
    return PostedItems(ExampleIn, body.examples, ExampleIn.labelled)


@router.get("/calibrations", response_model=CalibrationPage)
async def list_calibrations(
    services: CurrentServices,
    caller: CurrentCaller,
    after: Annotated[str, Query(description="Only sets whose names sort after this one.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Most sets to list.")] = 100,
) -> Response:
    """Lists the sets that the key can use, with thresholds, in pages sorted by name."""
    names = [
        name
        for name in await services.calibrations.names()
        if name > after and caller.may_use(name)
    ]
    page = names[:limit]
    # One set at a time, so that a page never holds more than one set that is not cached.
    sets = [
        await off_loop(calibration_of, calibration, kind=Calibration)
        async for calibration in services.calibrations.readable(page)
    ]
    following = page[-1] if len(names) > limit else None
    return await off_loop(
        as_json, lambda: CalibrationPage(calibrations=tuple(sets), next_after=following)
    )


@router.get("/calibrations/{name}", response_model=CalibrationDetail)
async def get_calibration(
    name: SetName,
    asked: Annotated[AlphasQuery, Query()],
    services: CurrentServices,
) -> Response:
    """Shows a set with its thresholds and risk-coverage curve.

    Several alphas share `delta`, so you can choose one after seeing them all.
    """
    levels = asked.levels(services.defaults.delta)
    calibration = await services.calibrations.get(name)
    traffic = services.calibrations.traffic.figures(calibration)
    if traffic is not None:
        drift = await services.drift.of(calibration)
        traffic = replace(traffic, drifted=any(stream.alarm for stream in drift.values()))
    # Each is its own turn in the threads, so that others get theirs in between.
    rows = [await off_loop(calibration.row, alpha, "pac", delta) for alpha, delta in levels]
    votes = calibration.fingerprint == services.identity.fingerprint and services.votes
    answer = partial(calibration_detail, calibration, traffic, rows, votes=votes)
    return await off_loop(as_json, answer)


@router.get("/calibrations/{name}/monitor", response_model=Monitor)
async def monitor_calibration(name: SetName, services: CurrentServices) -> Response:
    """Shows what audits prove about a set, and whether its traffic drifts."""
    calibration = await services.calibrations.get(name)
    await services.auditor.catch_up()
    report = await services.monitor.of(calibration)
    drift = await services.drift.of(calibration)
    recovery = services.absorber.recovery(calibration)
    return await off_loop(as_json, partial(monitor, services, calibration, report, drift, recovery))


@router.delete(
    "/calibrations/{name}",
    status_code=204,
    response_model=None,
    responses={
        200: {"model": Deletion, "description": "The consequences, with `dry_run`."},
    },
)
async def delete_calibration(
    name: SetName,
    asked: Annotated[DeletionQuery, Query()],
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Deletes a set. A rollback can restore it."""
    if not asked.dry_run:
        await services.calibrator.delete(name, by=caller.name)
        return Response(status_code=204)
    present = await services.calibrator.deletable(name)
    in_use = () if present is None else await services.changes.rows_in_use(present)
    book = services.auditor.book(name)
    return await off_loop(as_json, partial(deletion, name, present, in_use, book))


@router.get("/calibrations/{name}/examples", response_model=ExamplePage)
async def list_examples(
    name: SetName,
    services: CurrentServices,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Most entries to list.")] = 1000,
    after: Annotated[
        Digest | None, Query(description="Only examples with a larger digest.")
    ] = None,
) -> Response:
    """Lists the scores and labels of a set, sorted by digest, without texts."""
    calibration = await services.calibrations.get(name)
    return await off_loop(
        as_json, partial(example_page, calibration, after=after or "", limit=limit)
    )


@router.post("/calibrations/{name}/examples", response_model=CalibrationReport)
async def import_examples(
    name: SetName,
    body: ImportIn,
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Adds examples with scores of the same judge, as one new version."""
    batch = await request.run(body.batch)
    change = await services.changes.take(
        name,
        batch,
        by=caller.name,
        dry_run=body.dry_run,
        even_if_infeasible=body.even_if_infeasible,
    )
    return await off_loop(as_json, partial(calibration_report, change, [], dry_run=body.dry_run))


@router.get("/calibrations/{name}/versions", response_model=Versions)
async def list_versions(
    name: SetName,
    services: CurrentServices,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most entries to list.")] = 100,
    before: Annotated[
        VersionNumber | None, Query(description="Only versions below this one.")
    ] = None,
) -> Response:
    """Lists the changes of a set, newest first.

    `batch_digest` shows whether a batch of POST /calibrate has arrived. It is the SHA-256 of
    `json.dumps(rows, separators=(",", ":"))` in Python. Each valid example is a row, in order:
    `[[["user", question]], [response_a], [response_b], label]`. A conversation has one
    `[role, content]` per message.
    """
    changes = await services.calibrator.versions(name, before=before, limit=limit)
    return await off_loop(as_json, lambda: Versions(name=name, versions=tuple(changes)))


@router.post("/calibrations/{name}/rollback", response_model=CalibrationChange)
async def roll_back(
    name: SetName, body: RollbackIn, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Restores an earlier version of a set as a new version."""
    change = await services.changes.rollback(
        name, body.version, by=caller.name, dry_run=body.dry_run
    )
    return await off_loop(
        as_json, partial(change_of, change, kind=CalibrationChange, dry_run=body.dry_run)
    )
