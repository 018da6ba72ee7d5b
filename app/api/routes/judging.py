"""POST /judge and POST /judge/batch."""

import math
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Response

from app.api.answers import ItemErrorOut, JudgeBatchOut, JudgmentOut
from app.api.callers import Caller
from app.api.dependencies import Calling, Running, check_batch_size
from app.api.documented import ENGINE, GUARDED, STORE, problems
from app.api.errors import problem_of
from app.api.schemas import InvalidItem, JudgeBatchIn, JudgeIn
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
    ScopeJudgeError,
)
from app.service.judging import JudgeRequest
from app.service.services import Services

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
    asked = await request.run(body.request, services.limits)
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
    body.criterion(services.limits)  # an error of the batch itself is the request's
    items, read = await request.run(_read_all, body, services, caller)
    asked = {i: each for i, each in enumerate(read) if isinstance(each, JudgeRequest)}
    _check_work(asked.values())
    with services.admission.admit(len(asked)):
        judged = await services.judge.judge_batch(list(asked.values()))
    found = dict(zip(asked, judged, strict=True))

    def answer() -> JudgeBatchOut:
        outcomes = [
            found[i] if isinstance(each, JudgeRequest) else each for i, each in enumerate(read)
        ]
        return JudgeBatchOut(
            results=[
                _result(item.id, outcome) for item, outcome in zip(items, outcomes, strict=True)
            ]
        )

    judgments = (outcome for outcome in judged if isinstance(outcome, Judgment))
    return await answer_of(answer, many=len(items) > MANY, headers=_age(judgments))


def _read_all(
    body: JudgeBatchIn, services: Services, caller: Caller
) -> tuple[list[JudgeIn | InvalidItem], list[JudgeRequest | RequestError]]:
    """The comparisons of a batch, and for each what it asks for, or what is wrong with it."""
    items = body.items()
    read = [_read(item, body, services, caller) for item in items]
    for each in read:
        if isinstance(each, RequestError):
            services.telemetry.count_judgment_error(each.code)
    return items, read


def _read(
    item: JudgeIn | InvalidItem, batch: JudgeBatchIn, services: Services, caller: Caller
) -> JudgeRequest | RequestError:
    if isinstance(item, InvalidItem):
        return item.error
    try:
        request = item.request(services.limits, batch)
        _check_calibration(caller, request)
    except RequestError as exc:
        return exc
    return request


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


def _result(
    identifier: str | int | None, outcome: Judgment | ScopeJudgeError
) -> JudgmentOut | ItemErrorOut:
    if isinstance(outcome, ScopeJudgeError):
        return ItemErrorOut(id=identifier, error=problem_of(outcome))
    return JudgmentOut.of(outcome, identifier)
