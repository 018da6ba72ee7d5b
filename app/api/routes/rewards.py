"""POST /rewards/group, /rewards/groups, /rewards/reference and /rewards/openrlhf."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.answers.judgments import (
    openrlhf_rewards,
    rewards,
    rewards_batch,
    usage_of_request,
)
from app.api.problems import PROBLEMS
from app.api.requests.rendered import group_of_rendered
from app.api.requests.rewards import (
    OpenRlhfIn,
    RewardGroupIn,
    RewardGroupsIn,
    RewardQuery,
    RewardReferenceIn,
)
from app.api.routing import AGED, JsonRequest, JsonRoute, age_headers, as_json
from app.core.errors import InvalidRequestError, RequestError
from app.judging.rewards import Group, GroupRewards, RewardRule
from scope_judge.records import RewardsBatch, SingleRewards

router = APIRouter(tags=["rewards"], route_class=JsonRoute, responses=PROBLEMS)


@router.post("/rewards/group", response_model=SingleRewards, responses=AGED)
async def reward_group(body: RewardGroupIn, request: JsonRequest) -> Response:
    """Rewards responses to one question by comparing them with each other.

    A reward is the mean over a response's accepted comparisons, from -1 to 1, or null without any.
    In all routes of rewards, the guarantee covers accepted comparisons, not rewards. Equal texts
    are not compared and share a reward. The request waits instead of failing with 429.
    """
    return await _of_one(body.asked(), body, request)


@router.post("/rewards/groups", response_model=RewardsBatch, responses=AGED)
async def reward_groups(body: RewardGroupsIn, request: JsonRequest) -> Response:
    """Rewards several groups of responses. An invalid group does not fail the others.

    A group with a `reference` is rewarded like POST /rewards/reference, the others like POST
    /rewards/group.
    """
    # Checked before validation: a body of 8 MB may have a million groups.
    request.check_responses(len(body.groups))
    groups = await request.run(body.all)
    outcomes = await _rewards(groups, body, request)
    make = partial(rewards_batch, outcomes, comparisons=body.comparisons)
    judged = [outcome for outcome in outcomes if isinstance(outcome, GroupRewards)]
    return await _answer_with(make, judged, request)


@router.post("/rewards/reference", response_model=SingleRewards, responses=AGED)
async def reward_reference(body: RewardReferenceIn, request: JsonRequest) -> Response:
    """Rewards responses to one question by comparing them with a reference.

    A reward is 1 for a better response, -1 for a worse one (`soft`: 2 p_bar - 1), and null if the
    judge abstains or the texts are equal.
    """
    return await _of_one(body.asked(), body, request)


@router.post("/rewards/openrlhf", responses=AGED)
async def reward_openrlhf(
    body: OpenRlhfIn, options: Annotated[RewardQuery, Query()], request: JsonRequest
) -> Response:
    """Rewards samples of OpenRLHF against the references in `labels`.

    OpenRLHF sends the body; options are in the URL. A missing reward is 0, with a 1 under its
    reason in `extra_logs`.
    """
    request.check_responses(len(body.query))
    groups = await request.run(body.groups)
    judged = await _judged(groups, options.rule(request.services.defaults), request)
    return await _answer_with(partial(openrlhf_rewards, judged), judged, request)


_Body = RewardGroupIn | RewardGroupsIn | RewardReferenceIn


async def _of_one(group: Group, body: _Body, request: JsonRequest) -> Response:
    """The answer to a request with one group, whose error is that of the request."""
    (outcome,) = await _rewards([group], body, request)
    if isinstance(outcome, RequestError):
        raise outcome
    usage = usage_of_request()
    make = partial(rewards, outcome, comparisons=body.comparisons, kind=SingleRewards, usage=usage)
    return await _answer_with(make, [outcome], request)


async def _rewards(
    groups: Sequence[Group | RequestError], body: _Body, request: JsonRequest
) -> list[GroupRewards | RequestError]:
    """The rewards of the groups of a request, in order, errors included."""
    request.check_responses(
        sum(len(group.responses) for group in groups if isinstance(group, Group))
    )
    rule = body.rule(request.services.defaults)
    if body.rendered:
        groups = await request.run(_unrendered, groups)
    asked = [group for group in groups if isinstance(group, Group)]
    judged = iter(await _judged(asked, rule, request))
    return [next(judged) if isinstance(group, Group) else group for group in groups]


def _unrendered(groups: Sequence[Group | RequestError]) -> list[Group | RequestError]:
    """The groups with their rendered texts parsed, or with the error of parsing."""

    def parsed(group: Group | RequestError) -> Group | RequestError:
        if isinstance(group, RequestError):
            return group
        try:
            return group_of_rendered(group)
        except ValueError as exc:
            return InvalidRequestError(f"question: {exc}", faults=(("question", str(exc)),))

    return [parsed(group) for group in groups]


async def _judged(
    groups: Sequence[Group], rule: RewardRule, request: JsonRequest
) -> list[GroupRewards]:
    """The rewards of groups; raises an error if the caller may not use the calibration set."""
    request.check_criterion(rule.criterion)
    return await request.services.rewarder.reward(groups, rule, by=request.caller.name)


async def _answer_with(
    make: Callable[[], object], groups: Sequence[GroupRewards], request: JsonRequest
) -> Response:
    """The response with the body that `make` returns and the age of the thresholds."""
    outcomes = (outcome for group in groups for _, outcome in group.compared)
    return await request.run(as_json, make, headers=age_headers(outcomes))
