"""POST /v1/systemone and POST /v1/decisions: choices between two texts for decision clients."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.answers.decisions import (
    Decided,
    OpenAiAnswer,
    SystemOneAnswer,
    open_ai_answer,
    system_one_answer,
)
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
from app.api.requests.decisions import DecisionQuery, OpenAiDecisionsIn, SystemOneIn
from app.core.errors import ScopeJudgeError
from app.judging.services import Services

router = APIRouter(tags=["decisions"], route_class=JsonRoute, responses=PROBLEMS)
Options = Annotated[DecisionQuery, Query()]


@router.post("/v1/systemone", response_model=SystemOneAnswer, responses=AGED)
async def system_one(
    body: SystemOneIn,
    options: Options,
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Answers questions that choose between two texts.

    `choice` is the likelier option even if the judge abstains, unless you send `abstain_as`. The
    guarantee covers the verdict in `scope`.
    """
    return await _answer(system_one_answer, body, options, request, services, caller)


@router.post("/v1/decisions", response_model=OpenAiAnswer, responses=AGED)
async def decisions(
    body: OpenAiDecisionsIn,
    options: Options,
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Answers questions that choose between two texts, in OpenAI's format.

    See POST /v1/systemone.
    """
    return await _answer(open_ai_answer, body, options, request, services, caller)


async def _answer(
    answer: Callable[[Sequence[Decided], str], object],
    body: SystemOneIn | OpenAiDecisionsIn,
    options: DecisionQuery,
    request: JsonRequest,
    services: Services,
    caller: Caller,
) -> Response:
    """Judges all questions in one batch; an error of one fails the request."""
    check_batch_size(len(body.questions), services)
    options.criterion(services.defaults)  # raises if the criterion of the URL is invalid
    criterion = body.criterion(services.defaults, options)
    check_criterion(caller, criterion)
    asked = await request.run(
        partial(
            body.decisions,
            criterion,
            options,
            most_characters=services.limits.max_body_bytes,
        )
    )
    async with services.admission.admit(len(asked)):
        outcomes = await services.judge.judge_batch([one.asked for one in asked], by=caller.name)
    decided = []
    for decision, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, ScopeJudgeError):
            raise outcome
        decided.append(Decided.of(decision, outcome))
    return await request.run(
        as_json,
        partial(answer, decided, services.identity.name),
        headers=age_headers(one.judgment for one in decided),
    )
