"""POST /judge and POST /judge/batch."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from fastapi import APIRouter, Response

from app.api.answers.judgments import judgment_batch, single_judgment
from app.api.answers.making import AGED, age_headers, as_json
from app.api.inputs import (
    CurrentCaller,
    CurrentServices,
    JsonRequest,
    JsonRoute,
    check_batch_size,
    check_criterion,
)
from app.api.keys import Caller
from app.api.problems import PROBLEMS
from app.api.requests.models import MOST_EXPLAINED, BatchItem, JudgeBatchIn, JudgeIn
from app.core.comparison import Judgment
from app.core.errors import InvalidComparisonError, RequestError, TooManyCriteriaError
from app.judging.judge import JudgeRequest, Outcome
from app.judging.services import Services
from scope_judge.records import JudgmentBatch, SingleJudgment

router = APIRouter(tags=["judging"], route_class=JsonRoute, responses=PROBLEMS)

# Every criterion needs a threshold, which with `pac` takes a few milliseconds that cannot be
# cancelled.
_MOST_CRITERIA = 32


@router.post("/judge", response_model=SingleJudgment, responses=AGED)
async def judge(
    body: JudgeIn, request: JsonRequest, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Judges one comparison: "A", "B" or "abstain"."""
    asked = await request.run(body.request, services.defaults)
    check_criterion(caller, asked.criterion)
    if body.explain:
        _check_explains(1, services)
    async with services.admission.admit(1):
        judgment = await services.judge.judge(asked, by=caller.name)
        explanation = None
        if body.explain:
            (explanation,) = await services.explanations([(asked.comparison, judgment)])
    return as_json(
        partial(single_judgment, judgment, body.id, explanation=explanation),
        headers=age_headers((judgment,)),
    )


def _check_explains(size: int, services: Services) -> None:
    """Raises InvalidComparisonError if the judge cannot explain in a request of this size."""
    if not services.explains:
        raise InvalidComparisonError("this kind of judge writes no text: leave `explain` out")
    if size > MOST_EXPLAINED:
        raise InvalidComparisonError(
            f"explain is for batches of at most {MOST_EXPLAINED} comparisons, and this one has "
            f"{size}"
        )


async def _explanations(
    items: Sequence[BatchItem], outcomes: Sequence[Outcome], services: Services
) -> dict[int, str | None]:
    """The explanations by the place of their items."""
    judged = {
        place: (item.asked.comparison, outcome)
        for place, (item, outcome) in enumerate(zip(items, outcomes, strict=True))
        if item.explain and isinstance(item.asked, JudgeRequest) and isinstance(outcome, Judgment)
    }
    texts = await services.explanations(list(judged.values()))
    return dict(zip(judged, texts, strict=True))


@router.post("/judge/batch", response_model=JudgmentBatch, responses=AGED)
async def judge_batch(
    body: JudgeBatchIn, request: JsonRequest, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Judges many comparisons. An invalid item does not fail the others."""
    check_batch_size(len(body.comparisons), services)
    body.criterion(services.defaults)  # raises if the criterion of the batch is invalid
    items = await request.run(_items, body, services, caller)
    requests = [item.asked for item in items if isinstance(item.asked, JudgeRequest)]
    _check_criteria(requests)
    if any(item.explain for item in items):
        _check_explains(len(items), services)
    async with services.admission.admit(len(requests)):
        outcomes = await services.judge.judge_batch([item.asked for item in items], by=caller.name)
        explanations = await _explanations(items, outcomes, services)
    judgments = (outcome for outcome in outcomes if isinstance(outcome, Judgment))
    return await request.run(
        as_json,
        partial(judgment_batch, items, outcomes, explanations),
        headers=age_headers(judgments),
    )


def _items(body: JudgeBatchIn, services: Services, caller: Caller) -> list[BatchItem]:
    """The items of a batch, with an error if the caller may not use the item's calibration set."""
    return [_permitted(item, caller) for item in body.items(services.defaults)]


def _permitted(item: BatchItem, caller: Caller) -> BatchItem:
    if isinstance(item.asked, JudgeRequest):
        try:
            check_criterion(caller, item.asked.criterion)
        except RequestError as exc:
            return replace(item, asked=exc)
    return item


def _check_criteria(requests: Iterable[JudgeRequest]) -> None:
    asked = {request.criterion for request in requests}
    if len(asked) > _MOST_CRITERIA:
        raise TooManyCriteriaError(
            f"the batch has {len(asked)} different criteria (alpha, guarantee, delta and "
            f"calibration) and the limit is {_MOST_CRITERIA}: send several batches"
        )
