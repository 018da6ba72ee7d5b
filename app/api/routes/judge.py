"""POST /judge and POST /judge/batch."""

from collections.abc import Iterable, Sequence
from functools import partial

from fastapi import APIRouter, Response

from app.api.answers.judgments import judgment_batch, single_judgment
from app.api.problems import PROBLEMS
from app.api.requests.models import MOST_EXPLAINED, JudgeBatchIn, JudgeIn, PostedItems
from app.api.routing import AGED, JsonRequest, JsonRoute, age_headers, as_json
from app.core.comparison import Case, Criterion
from app.core.errors import InvalidComparisonError, RequestError, TooManyCriteriaError
from app.judging.judge import Asked, Outcome
from scope_judge.records import JudgmentBatch, SingleJudgment

router = APIRouter(tags=["judging"], route_class=JsonRoute, responses=PROBLEMS)

# Every criterion needs a threshold, which with `pac` takes a few milliseconds that cannot be
# cancelled.
_MOST_CRITERIA = 32


@router.post("/judge", response_model=SingleJudgment, responses=AGED)
async def judge(body: JudgeIn, request: JsonRequest) -> Response:
    """Judges one comparison: "A", "B" or "abstain"."""
    services = request.services
    asked = await request.run(body.asked, services.defaults)
    request.check_criterion(asked[1])
    if body.explain:
        _check_explains(1, request)
    async with services.admission.admit(1):
        case = await services.judge.judge(asked, by=request.caller.name)
        explanation = None
        if body.explain:
            (explanation,) = await services.explanations([case])
    return as_json(
        partial(single_judgment, case, body.id, explanation=explanation),
        headers=age_headers((case,)),
    )


def _check_explains(size: int, request: JsonRequest) -> None:
    """Raises InvalidComparisonError if the judge cannot explain in a request of this size."""
    if not request.services.explains:
        raise InvalidComparisonError("this kind of judge writes no text: leave `explain` out")
    if size > MOST_EXPLAINED:
        raise InvalidComparisonError(
            f"explain is for batches of at most {MOST_EXPLAINED} comparisons, and this one has "
            f"{size}"
        )


@router.post("/judge/batch", response_model=JudgmentBatch, responses=AGED)
async def judge_batch(body: JudgeBatchIn, request: JsonRequest) -> Response:
    """Judges many comparisons. An invalid item does not fail the others."""
    services = request.services
    request.check_comparisons(len(body.comparisons))
    body.criterion(services.defaults)  # raises if the criterion of the batch is invalid
    posted = await request.run(_read_all, body, request)
    asked = [one if isinstance(one, RequestError) else one[0] for one in posted.items]
    explained = [explains for _, explains in posted.read]
    _check_criteria(criterion for (_, criterion), _ in posted.read)
    if any(explained):
        _check_explains(len(asked), request)
    async with services.admission.admit(len(explained)):
        outcomes = await services.judge.judge_batch(asked, by=request.caller.name)
        explanations = await _explanations(posted, outcomes, request)
    return await request.run(
        as_json,
        partial(judgment_batch, posted.ids, outcomes, explanations),
        headers=age_headers(outcomes),
    )


def _read_all(body: JudgeBatchIn, request: JsonRequest) -> PostedItems[tuple[Asked, bool]]:
    """The items of a batch, each with whether the judge explains its preference."""

    def read(item: JudgeIn) -> tuple[Asked, bool]:
        asked = item.asked(request.services.defaults, body)
        request.check_criterion(asked[1])
        return asked, body.explain or item.explain

    return PostedItems(JudgeIn, body.comparisons, read)


async def _explanations(
    posted: PostedItems[tuple[Asked, bool]], outcomes: Sequence[Outcome], request: JsonRequest
) -> dict[int, str | None]:
    """The explanations by the place of their items."""
    judged = {
        place: outcome
        for place, (item, outcome) in enumerate(zip(posted.items, outcomes, strict=True))
        if not isinstance(item, RequestError) and item[1] and isinstance(outcome, Case)
    }
    texts = await request.services.explanations(list(judged.values()))
    return dict(zip(judged, texts, strict=True))


def _check_criteria(criteria: Iterable[Criterion]) -> None:
    asked = set(criteria)
    if len(asked) > _MOST_CRITERIA:
        raise TooManyCriteriaError(
            f"the batch has {len(asked)} different criteria (alpha, guarantee, delta and "
            f"calibration) and the limit is {_MOST_CRITERIA}: send several batches"
        )
