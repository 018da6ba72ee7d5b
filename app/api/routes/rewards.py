"""POST /rewards/group, /rewards/groups and /rewards/reference."""

from collections.abc import Callable, Sequence
from functools import partial

from fastapi import APIRouter, Response
from pydantic import BaseModel

from app.api.auth.callers import Caller
from app.api.calibration_age import AGED, age_headers
from app.api.dependencies import CurrentCaller, CurrentServices, check_criterion
from app.api.error_responses import ACCESS_ERRORS, ENGINE_ERRORS, STORE_ERRORS, error_responses
from app.api.offloading import MANY_ITEMS, OffloadingRequest, OffloadingRoute, json_response
from app.core.comparison import Judgment
from app.core.errors import (
    BatchTooLargeError,
    CalibrationNotFoundError,
    JudgeMismatchError,
    LabelsMissingError,
)
from app.service.rewards.rewarder import Group, GroupRewards, RewardRule
from app.service.services import Services
from app.wire.frameworks.rendered import group_of_rendered
from app.wire.frameworks.samples import read
from app.wire.rewards import (
    RewardGroupIn,
    RewardGroupsIn,
    RewardGroupsOut,
    RewardReferenceIn,
    RewardsOut,
)

router = APIRouter(tags=["rewards"], route_class=OffloadingRoute)

# Errors that the texts of one comparison cause are in the answer, not in the status.
REWARD_RESPONSES = {
    **AGED,
    **error_responses(
        *(*ACCESS_ERRORS, *STORE_ERRORS, *ENGINE_ERRORS),
        *(BatchTooLargeError, CalibrationNotFoundError),
        *(JudgeMismatchError, LabelsMissingError),
    ),
}


@router.post("/rewards/group", response_model=RewardsOut, responses=REWARD_RESPONSES)
async def reward_group(
    body: RewardGroupIn, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Rewards the responses to one question by comparing them with each other.

    A reward is the mean over the response's accepted comparisons, from -1 to 1, and null where none
    was accepted. The guarantee is about comparisons, not about rewards: at most a share `alpha` of
    the accepted comparisons is wrong, and nothing is promised about the mean of some of them. Equal
    texts are not compared and share their reward. The request waits for free places instead of
    being refused with 429.
    """
    rule = body.rule(services.defaults)
    found = await rewards_of(_as_asked([body.group()], body, services), rule, services, caller)
    return await answer_with(partial(RewardsOut.of, found[0], comparisons=body.comparisons), found)


@router.post("/rewards/groups", response_model=RewardGroupsOut, responses=REWARD_RESPONSES)
async def reward_groups(
    body: RewardGroupsIn,
    request: OffloadingRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Rewards several groups of responses, all judged in one engine call.

    Each group is rewarded as by POST /rewards/group. The guarantee is about comparisons, not about
    rewards.
    """
    rule = body.rule(services.defaults)
    groups = await request.run(lambda: _as_asked(body.all(), body, services))
    found = await rewards_of(groups, rule, services, caller)
    return await answer_with(
        partial(RewardGroupsOut.of, found, comparisons=body.comparisons), found
    )


@router.post("/rewards/reference", response_model=RewardsOut, responses=REWARD_RESPONSES)
async def reward_reference(
    body: RewardReferenceIn, services: CurrentServices, caller: CurrentCaller
) -> Response:
    """Rewards responses to one question by comparing each with a reference.

    A reward is 1 if the response is accepted as better, -1 if it is accepted as worse, and null if
    the judge abstains or the texts are equal; with `"reward": "soft"` it is 2 p_bar - 1. The
    guarantee is about comparisons, not about rewards.
    """
    rule = body.rule(services.defaults)
    found = await rewards_of(_as_asked([body.group()], body, services), rule, services, caller)
    return await answer_with(partial(RewardsOut.of, found[0], comparisons=body.comparisons), found)


def _as_asked(
    groups: list[Group],
    body: RewardGroupIn | RewardGroupsIn | RewardReferenceIn,
    services: Services,
) -> list[Group]:
    """The groups, whose texts are taken apart if the request says that they are rendered."""
    if not body.rendered:
        return groups
    return [
        read("question", partial(group_of_rendered, end_markers=services.end_markers), each)
        for each in groups
    ]


async def rewards_of(
    groups: Sequence[Group], rule: RewardRule, services: Services, caller: Caller
) -> list[GroupRewards]:
    """The rewards of some groups, if the caller may use the calibration set."""
    check_criterion(caller, rule.criterion)
    return await services.rewarder.reward(groups, rule)


async def answer_with(
    make: Callable[[], BaseModel], found: Sequence[GroupRewards], *, large: bool = False
) -> Response:
    """The response that a function makes of some rewards, with the age of their thresholds.

    Args:
        make: Makes the answer.
        found: The rewards.
        large: Whether the answer is large, even if it has few rewards.
    """
    outcomes = [each.outcome for group in found for each in group.compared]
    size = len(outcomes) + sum(len(group.standings) for group in found)
    return await json_response(
        make,
        many=large or size > MANY_ITEMS,
        headers=age_headers(each for each in outcomes if isinstance(each, Judgment)),
    )
