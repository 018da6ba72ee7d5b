"""POST /judge and POST /judge/batch."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from app.api.auth.callers import Caller
from app.api.dependencies import Calling, Running, check_batch_size
from app.api.documented import ENGINE, GUARDED, STORE, problems
from app.api.sized_requests import MANY, SizedRequest, SizedRoute, answer_of
from app.core.comparison import Judgment
from app.core.errors import (
    BatchTooLargeError,
    CalibrationNotFoundError,
    ControlTokenError,
    InvalidComparisonError,
    InvalidRequestError,
    JudgeMismatchError,
    PromptTooLongError,
    RequestError,
)
from app.service.judging.batches import BatchItem, judge_items, requests_of
from app.service.judging.judge import JudgeRequest
from app.service.services import Services
from app.wire.answers import JudgeBatchOut, JudgmentOut
from app.wire.requests import JudgeBatchIn, JudgeIn

router = APIRouter(tags=["judging"], route_class=SizedRoute)

AGE_HEADER = "Scope-Calibration-Age"
# Each has a threshold of its own to be found: a few milliseconds, and nothing stops it.
_MOST_PAC_CRITERIA = 32
_AGED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            AGE_HEADER: {
                "description": "Only while the calibration store does not answer: seconds since it "
                "last confirmed the thresholds that were used.",
                "schema": {"type": "integer"},
            }
        }
    }
}

_OF_ONE = problems(
    *(*GUARDED, *STORE, *ENGINE, InvalidComparisonError, CalibrationNotFoundError),
    *(JudgeMismatchError, PromptTooLongError, ControlTokenError),
)
# What is wrong with one comparison stands in its place among the results.
_OF_MANY = problems(*GUARDED, *STORE, *ENGINE, BatchTooLargeError)


@router.post("/judge", responses={**_AGED, **_OF_ONE})
async def judge(
    body: JudgeIn, request: SizedRequest, services: Running, caller: Calling, response: Response
) -> JudgmentOut:
    """Judges one comparison: "A", "B" or "abstain"."""
    asked = await request.run(body.request, services.defaults)
    _check_calibration(caller, asked)
    with services.admission.admit(1):
        judgment = await services.judge.judge(asked)
    response.headers.update(_age((judgment,)))
    return JudgmentOut.of(judgment, body.id)


@router.post("/judge/batch", response_model=JudgeBatchOut, responses={**_AGED, **_OF_MANY})
async def judge_batch(
    body: JudgeBatchIn, request: SizedRequest, services: Running, caller: Calling
) -> Response:
    """Judges many comparisons in one engine call; a bad item never fails its neighbours."""
    check_batch_size(len(body.comparisons), services)
    body.criterion(services.defaults)  # an error of the batch itself is the request's
    items = await request.run(_items, body, services, caller)
    requests = requests_of(items)
    _check_work(requests)
    with services.admission.admit(len(requests)):
        outcomes = await judge_items(services.judge, items)
    judgments = (outcome for outcome in outcomes if isinstance(outcome, Judgment))
    return await answer_of(
        partial(JudgeBatchOut.of, items, outcomes),
        many=len(items) > MANY,
        headers=_age(judgments),
    )


def _items(body: JudgeBatchIn, services: Services, caller: Caller) -> list[BatchItem]:
    """The comparisons of a batch, as far as the caller may ask for them."""
    items = [_permitted(item, caller) for item in body.items(services.defaults)]
    for item in items:
        if isinstance(item.asked, RequestError):
            services.telemetry.count_judgment_error(item.asked.code)
    return items


def _permitted(item: BatchItem, caller: Caller) -> BatchItem:
    if isinstance(item.asked, JudgeRequest):
        try:
            _check_calibration(caller, item.asked)
        except RequestError as exc:
            return item._replace(asked=exc)
    return item


def _check_work(requests: Iterable[JudgeRequest]) -> None:
    asked = {r.criterion for r in requests if r.criterion.guarantee == "pac"}
    if len(asked) > _MOST_PAC_CRITERIA:
        raise InvalidRequestError(
            f"a batch may ask for {_MOST_PAC_CRITERIA} different alphas, deltas and calibrations "
            f'with "pac", this one asks for {len(asked)}; send several'
        )


def _check_calibration(caller: Caller, request: JudgeRequest) -> None:
    # Without an alpha no calibration is looked at.
    if request.criterion.alpha is not None:
        caller.check_calibration(request.criterion.calibration)


def _age(judgments: Iterable[Judgment]) -> dict[str, str]:
    """The header with the age of the oldest calibration, where the store has not confirmed it."""
    ages = (judgment.calibration.age_s for judgment in judgments if judgment.calibration)
    oldest = max(ages, default=0.0)
    return {AGE_HEADER: str(math.ceil(oldest))} if oldest > 0 else {}
