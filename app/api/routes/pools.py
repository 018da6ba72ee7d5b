"""The routes of pairs that are judged first and labeled later."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.answers.making import as_json
from app.api.answers.sets import next_labels, pool_report
from app.api.inputs import (
    CurrentCaller,
    CurrentServices,
    JsonRequest,
    JsonRoute,
    SetName,
    check_batch_size,
)
from app.api.problems import PROBLEMS
from app.api.requests.models import PoolIn, PoolPairIn, PostedItems, Probability
from app.api.routes.calibrations import LARGEST_PAGE
from app.core.comparison import Comparison
from app.core.errors import RequestError
from app.core.examples import MOST_PAIRS
from app.core.start_rank import fair_start_rank
from app.off_loop import off_loop
from app.sets.batch import JudgedBatch
from scope_judge.records import NextLabels, PoolReport

router = APIRouter(tags=["calibrating"], route_class=JsonRoute, responses=PROBLEMS)


@router.post("/calibrations/{name}/pool", response_model=PoolReport)
async def add_pairs(
    name: SetName,
    body: PoolIn,
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Judges pairs and adds them to a set without labels."""
    check_batch_size(len(body.comparisons), services)
    pairs = await request.run(_read_all, body)
    delta = services.defaults.delta if body.delta is None else body.delta
    least = await request.run(lambda: _least(body.alpha, delta))
    look = None if body.even_if_infeasible else await services.changes.look_at_pool()
    async with services.admission.admit(len(pairs.read)):
        batch, change = await services.calibrator.pool(
            name,
            pairs.read,
            least=least,
            look=look,
            by=caller.name,
            unread=pairs.unread,
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


def _read_all(body: PoolIn) -> PostedItems[Comparison]:
    return PostedItems(PoolPairIn, body.comparisons, PoolPairIn.comparison)


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
    services: CurrentServices,
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
    calibration = await services.calibrations.get(name)
    usual = services.defaults
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
