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

router = APIRouter(tags=["judging"])

AGE_HEADER = "Scope-Calibration-Age"
# Each has a threshold of its own to be found: 50 ms with 20,000 examples, and nothing stops it.
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
    body: JudgeIn, services: Running, caller: Calling, response: Response
) -> JudgmentOut:
    """Judges one comparison: "A", "B" or "abstain"."""
    request = body.request(services.limits)
    _check_calibration(caller, request)
    with services.admission.admit(1):
        judgment = await services.judge.judge(request)
    _tell_age(response, (judgment,))
    return JudgmentOut.of(judgment, body.id)


@router.post("/judge/batch", responses={**_AGED, **_OF_MANY})
async def judge_batch(
    body: JudgeBatchIn, services: Running, caller: Calling, response: Response
) -> JudgeBatchOut:
    """Judges many comparisons in one engine call; a bad item never fails its neighbours."""
    check_batch_size(len(body.comparisons), services)
    items = body.items()
    body.criterion(services.limits)  # an error of the batch itself is the request's
    outcomes: list[Judgment | ScopeJudgeError | None] = [None] * len(items)
    requests: dict[int, JudgeRequest] = {}
    for i, item in enumerate(items):
        read = _read(item, body, services, caller)
        if isinstance(read, ScopeJudgeError):
            services.telemetry.count_judgment_error(read.code)
            outcomes[i] = read
        else:
            requests[i] = read
    _check_work(requests.values())
    with services.admission.admit(len(requests)):
        judged = await services.judge.judge_batch(list(requests.values()))
    for i, outcome in zip(requests, judged, strict=True):
        outcomes[i] = outcome
    _tell_age(response, (outcome for outcome in judged if isinstance(outcome, Judgment)))
    return JudgeBatchOut(
        results=[_result(item.id, outcome) for item, outcome in zip(items, outcomes, strict=True)]
    )


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


def _tell_age(response: Response, judgments: Iterable[Judgment]) -> None:
    """Says how old the oldest calibration is, where the store has not confirmed it."""
    ages = (judgment.calibration.age_s for judgment in judgments if judgment.calibration)
    oldest = max(ages, default=0.0)
    if oldest > 0:
        response.headers[AGE_HEADER] = str(math.ceil(oldest))


def _result(
    identifier: str | int | None, outcome: Judgment | ScopeJudgeError | None
) -> JudgmentOut | ItemErrorOut:
    assert outcome is not None, "every item has a judgment or an error"
    if isinstance(outcome, ScopeJudgeError):
        return ItemErrorOut(id=identifier, error=problem_of(outcome))
    return JudgmentOut.of(outcome, identifier)
