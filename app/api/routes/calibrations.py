"""The routes below /calibrate and /calibrations."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.answers.monitor import monitor
from app.api.answers.sets import (
    calibration_detail,
    calibration_of,
    calibration_report,
    change_of,
    deletion,
    example_page,
    next_labels,
    pool_report,
    scores,
)
from app.api.problems import PROBLEMS
from app.api.requests.models import (
    AlphasQuery,
    CalibrateIn,
    DeletionQuery,
    Digest,
    ExampleIn,
    LabeledBatchIn,
    PairIn,
    PoolIn,
    PostedItems,
    Probability,
    RollbackIn,
    VersionNumber,
)
from app.api.requests.scored_examples import ImportIn
from app.api.routing import JsonRequest, JsonRoute, SetName, as_json
from app.core.comparison import Comparison, LabeledComparison
from app.core.errors import RequestError
from app.core.examples import MOST_PAIRS
from app.core.pac import fair_start_rank
from app.flow import off_loop
from app.sets.change import JudgedBatch
from scope_judge.records import (
    Calibration,
    CalibrationChange,
    CalibrationDetail,
    CalibrationPage,
    CalibrationReport,
    Deletion,
    ExamplePage,
    Monitor,
    NextLabels,
    PoolReport,
    Scores,
    Versions,
)

router = APIRouter(tags=["calibrating"], route_class=JsonRoute, responses=PROBLEMS)

# About 2 MB of JSON.
LARGEST_PAGE = 10_000


@router.post("/calibrate", response_model=CalibrationReport)
async def calibrate(body: CalibrateIn, request: JsonRequest) -> Response:
    """Judges labeled examples and adds them to a set, as one new version.

    `dry_run` judges, too. To judge only once, send the examples to POST /calibrate/scores and the
    scores to POST /calibrations/{name}/examples.
    """
    services = request.services
    request.caller.check_calibration(body.calibration)
    request.check_comparisons(len(body.examples))
    examples = await request.run(_read_all, body)
    async with services.admission.admit(len(examples.read)):
        batch = await services.calibrator.judged(
            body.calibration,
            examples.read,
            replaces=body.replace,
            change_labels=body.change_labels,
        )
        change = await services.changes.put(
            body.calibration,
            batch,
            by=request.caller.name,
            dry_run=body.dry_run,
            even_if_infeasible=body.even_if_infeasible,
        )
    errors = examples.errors(change.failed)
    return await off_loop(
        as_json, partial(calibration_report, change, errors, dry_run=body.dry_run)
    )


@router.post("/calibrate/scores", response_model=Scores)
async def score(body: LabeledBatchIn, request: JsonRequest) -> Response:
    """Judges labeled examples and returns their scores. No set changes."""
    services = request.services
    request.caller.check_calibration(body.calibration)
    request.check_comparisons(len(body.examples))
    examples = await request.run(_read_all, body)
    async with services.admission.admit(len(examples.read)):
        batch = await services.calibrator.judged(body.calibration, examples.read, adds=False)
    return await request.run(
        as_json,
        lambda: scores(services.identity.name, batch, examples.errors(batch.errors)),
    )


def _read_all(body: LabeledBatchIn) -> PostedItems[LabeledComparison]:
    return PostedItems(ExampleIn, body.examples, ExampleIn.labelled)


@router.get("/calibrations", response_model=CalibrationPage)
async def list_calibrations(
    request: JsonRequest,
    after: Annotated[str, Query(description="Only sets whose names sort after this one.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Most sets to list.")] = 100,
) -> Response:
    """Lists the sets that the key can use, with thresholds, in pages sorted by name."""
    names = [
        name
        for name in await request.services.store.names()
        if name > after and request.caller.may_use(name)
    ]
    page = names[:limit]
    # One set at a time, so that a page never holds more than one set that is not cached.
    sets = [
        await off_loop(calibration_of, calibration, kind=Calibration)
        async for calibration in request.services.calibrations.readable(page)
    ]
    following = page[-1] if len(names) > limit else None
    return await off_loop(
        as_json, lambda: CalibrationPage(calibrations=tuple(sets), next_after=following)
    )


@router.get("/calibrations/{name}", response_model=CalibrationDetail)
async def get_calibration(
    name: SetName, asked: Annotated[AlphasQuery, Query()], request: JsonRequest
) -> Response:
    """Shows a set with its thresholds and risk-coverage curve.

    Several alphas share `delta`, so you can choose one after seeing them all.
    """
    services = request.services
    levels = asked.levels(services.defaults.delta)
    calibration = await services.calibrations.get(name)
    # Each is its own turn in the threads, so that others get theirs in between.
    rows = [await off_loop(calibration.row, alpha, "pac", delta) for alpha, delta in levels]
    votes = calibration.fingerprint == services.identity.fingerprint and services.votes
    answer = partial(calibration_detail, calibration, rows, votes=votes)
    return await off_loop(as_json, answer)


@router.get("/calibrations/{name}/monitor", response_model=Monitor)
async def monitor_calibration(name: SetName, request: JsonRequest) -> Response:
    """Shows what audits prove about a set, and whether its traffic drifts."""
    services = request.services
    calibration = await services.calibrations.get(name)
    await services.auditor.catch_up()
    report = await services.monitor.of(calibration)
    drift = await services.drift.of(calibration)
    recovery = services.changes.recovery(calibration)
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
    name: SetName, asked: Annotated[DeletionQuery, Query()], request: JsonRequest
) -> Response:
    """Deletes a set. A rollback can restore it."""
    services = request.services
    if not asked.dry_run:
        await services.calibrator.delete(name, by=request.caller.name)
        return Response(status_code=204)
    present = await services.calibrator.deletable(name)
    in_use = () if present is None else await services.changes.rows_in_use(present)
    book = services.auditor.book(name)
    return await off_loop(as_json, partial(deletion, name, present, in_use, book))


@router.get("/calibrations/{name}/examples", response_model=ExamplePage)
async def list_examples(
    name: SetName,
    request: JsonRequest,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Most entries to list.")] = 1000,
    after: Annotated[
        Digest | None, Query(description="Only examples with a larger digest.")
    ] = None,
) -> Response:
    """Lists the scores and labels of a set, sorted by digest, without texts."""
    calibration = await request.services.calibrations.get(name)
    return await off_loop(
        as_json, partial(example_page, calibration, after=after or "", limit=limit)
    )


@router.post("/calibrations/{name}/examples", response_model=CalibrationReport)
async def import_examples(name: SetName, body: ImportIn, request: JsonRequest) -> Response:
    """Adds examples with scores of the same judge, as one new version."""
    batch = await request.run(body.batch)
    change = await request.services.changes.put(
        name,
        batch,
        by=request.caller.name,
        dry_run=body.dry_run,
        even_if_infeasible=body.even_if_infeasible,
    )
    return await off_loop(as_json, partial(calibration_report, change, [], dry_run=body.dry_run))


@router.get("/calibrations/{name}/versions", response_model=Versions)
async def list_versions(
    name: SetName,
    request: JsonRequest,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most entries to list.")] = 100,
    before: Annotated[
        VersionNumber | None, Query(description="Only versions below this one.")
    ] = None,
) -> Response:
    """Lists the changes of a set, newest first."""
    changes = await request.services.calibrator.versions(name, before=before, limit=limit)
    return await off_loop(as_json, lambda: Versions(name=name, versions=tuple(changes)))


@router.post("/calibrations/{name}/rollback", response_model=CalibrationChange)
async def roll_back(name: SetName, body: RollbackIn, request: JsonRequest) -> Response:
    """Restores an earlier version of a set as a new version."""
    change = await request.services.changes.rollback(
        name, body.version, by=request.caller.name, dry_run=body.dry_run
    )
    return await off_loop(
        as_json, partial(change_of, change, kind=CalibrationChange, dry_run=body.dry_run)
    )


@router.post("/calibrations/{name}/pool", response_model=PoolReport)
async def add_pairs(name: SetName, body: PoolIn, request: JsonRequest) -> Response:
    """Judges pairs and adds them to a set without labels."""
    services = request.services
    request.check_comparisons(len(body.comparisons))
    pairs = await request.run(_read_pairs, body)
    delta = services.defaults.delta if body.delta is None else body.delta
    least = await request.run(lambda: _least(body.alpha, delta))
    look = None if body.even_if_infeasible else services.changes.look_at_pool
    async with services.admission.admit(len(pairs.read)):
        batch, change = await services.calibrator.pool(
            name,
            pairs.read,
            least=least,
            look=look,
            by=request.caller.name,
        )
    return await request.run(
        as_json,
        lambda: pool_report(change, _digests(pairs, batch), pairs.errors(change.failed)),
    )


def _least(alpha: float | None, delta: float) -> int:
    """The fewest pairs of a pool whose first test can pass at an alpha."""
    if alpha is None:
        return 0
    return fair_start_rank(alpha, delta, 0.0, at_most=MOST_PAIRS) or MOST_PAIRS + 1


def _read_pairs(body: PoolIn) -> PostedItems[Comparison]:
    return PostedItems(PairIn, body.comparisons, PairIn.comparison)


def _digests(pairs: PostedItems[Comparison], batch: JudgedBatch) -> list[str | None]:
    """The digest of each posted pair; None for those that failed."""
    judged = iter(batch.examples)
    return [
        found[0] if isinstance(found, tuple) else None
        for pair in pairs.items
        for found in [pair if isinstance(pair, RequestError) else next(judged)]
    ]


@router.get("/calibrations/{name}/next", response_model=NextLabels)
async def list_next(
    name: SetName,
    request: JsonRequest,
    alpha: Annotated[
        Probability | None,
        Query(description="Alpha to label for (default: that of the service)."),
    ] = None,
    delta: Annotated[
        Probability | None,
        Query(description="Delta to label for, likewise."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Most entries to list.")] = 100,
) -> Response:
    """Lists the pairs to label next for `pac`, or shows the final threshold.

    The promise holds only for an alpha and a delta that you chose before the first label.
    """
    calibration = await request.services.calibrations.get(name)
    usual = request.services.defaults
    return await off_loop(
        as_json,
        partial(
            next_labels,
            calibration,
            alpha=usual.alpha if alpha is None else alpha,
            delta=usual.delta if delta is None else delta,
            limit=limit,
        ),
    )
