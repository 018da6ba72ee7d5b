"""POST /judge and POST /judge/batch."""

from collections.abc import Iterable
from functools import partial

from fastapi import APIRouter, Response

from app.api.auth.callers import Caller
from app.api.calibration_age import AGED, age_headers
from app.api.dependencies import check_batch_size, check_criterion
from app.api.error_responses import ACCESS_ERRORS, ENGINE_ERRORS, STORE_ERRORS, error_responses
from app.api.offloading import MANY_ITEMS, DirectRoute, OffloadingRequest, json_response
from app.core.comparison import Judgment
from app.core.errors import (
    BatchTooLargeError,
    CalibrationNotFoundError,
    ControlTokenError,
    InvalidComparisonError,
    InvalidRequestError,
    JudgeMismatchError,
    LabelsMissingError,
    PromptTooLongError,
    RequestError,
)
from app.service.judging.batches import BatchItem, judge_items, requests_of
from app.service.judging.judge import JudgeRequest
from app.service.services import Services
from app.wire.answers import JudgeBatchOut, JudgmentOut
from app.wire.requests import JudgeBatchIn, JudgeIn

router = APIRouter(tags=["judging"], route_class=DirectRoute)

# Each one needs its own threshold, a computation of a few milliseconds that cannot be cancelled.
_MOST_PAC_CRITERIA = 32
_OF_ONE = error_responses(
    *(
        *ACCESS_ERRORS,
        *STORE_ERRORS,
        *ENGINE_ERRORS,
        InvalidComparisonError,
        CalibrationNotFoundError,
    ),
    *(JudgeMismatchError, LabelsMissingError, PromptTooLongError, ControlTokenError),
)
# Errors of single comparisons are in the results, not in the status.
_OF_MANY = error_responses(*ACCESS_ERRORS, *STORE_ERRORS, *ENGINE_ERRORS, BatchTooLargeError)


@router.post("/judge", response_model=JudgmentOut, responses={**AGED, **_OF_ONE})
async def judge(body: JudgeIn, request: OffloadingRequest) -> Response:
    """Judges one comparison: "A", "B" or "abstain"."""
    services = request.services
    asked = await request.run(body.request, services.defaults)
    check_criterion(request.caller, asked.criterion)
    with services.admission.admit(1):
        judgment = await services.judge.judge(asked)
    return await json_response(
        partial(JudgmentOut.of, judgment, body.id), many=False, headers=age_headers((judgment,))
    )


@router.post("/judge/batch", response_model=JudgeBatchOut, responses={**AGED, **_OF_MANY})
async def judge_batch(body: JudgeBatchIn, request: OffloadingRequest) -> Response:
    """Judges many comparisons in one engine call; a bad item never fails the others."""
    services = request.services
    check_batch_size(len(body.comparisons), services)
    body.criterion(services.defaults)  # an error of the batch's own criterion fails the request
    items = await request.run(_items, body, services, request.caller)
    requests = requests_of(items)
    _check_work(requests)
    with services.admission.admit(len(requests)):
        outcomes = await judge_items(services.judge, items)
    judgments = (outcome for outcome in outcomes if isinstance(outcome, Judgment))
    return await json_response(
        partial(JudgeBatchOut.of, items, outcomes),
        many=len(items) > MANY_ITEMS,
        headers=age_headers(judgments),
    )


def _items(body: JudgeBatchIn, services: Services, caller: Caller) -> list[BatchItem]:
    """The items of a batch; an item has an error if the caller may not use its calibration set."""
    items = [_permitted(item, caller) for item in body.items(services.defaults)]
    for item in items:
        if isinstance(item.asked, RequestError):
            services.telemetry.count_judgment_error(item.asked.code)
    return items


def _permitted(item: BatchItem, caller: Caller) -> BatchItem:
    if isinstance(item.asked, JudgeRequest):
        try:
            check_criterion(caller, item.asked.criterion)
        except RequestError as exc:
            return item._replace(asked=exc)
    return item


def _check_work(requests: Iterable[JudgeRequest]) -> None:
    asked = {r.criterion for r in requests if r.criterion.guarantee == "pac"}
    if len(asked) > _MOST_PAC_CRITERIA:
        raise InvalidRequestError(
            f"the batch has {len(asked)} different combinations of alpha, delta and calibration "
            f'with "pac" and the limit is {_MOST_PAC_CRITERIA}: send several batches'
        )
