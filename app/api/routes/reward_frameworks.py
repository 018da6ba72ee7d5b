"""The reward routes in the formats of OpenRLHF, slime and NeMo Gym."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.bodies import JsonRequest, JsonRoute
from app.api.dependencies import CurrentCaller, CurrentServices, check_responses
from app.api.routes.rewards import REWARD_RESPONSES, answer_with, endings_of, rewards_of
from app.wire.frameworks.nemo_gym import (
    CompareQuery,
    NemoCompareIn,
    NemoCompareOut,
    NemoVerifyIn,
    NemoVerifyOut,
    ReferenceQuery,
)
from app.wire.frameworks.openrlhf import OpenRlhfIn, OpenRlhfOut
from app.wire.frameworks.samples import RewardQuery
from app.wire.frameworks.slime import SlimeIn, SlimeOut

router = APIRouter(tags=["rewards"], route_class=JsonRoute)


@router.post("/rewards/openrlhf", response_model=OpenRlhfOut, responses=REWARD_RESPONSES)
async def reward_openrlhf(
    body: OpenRlhfIn,
    options: Annotated[RewardQuery, Query()],
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Rewards samples of OpenRLHF against the references in `labels`.

    OpenRLHF sends the body; options are in the URL. A missing reward is 0, with a 1 under its
    reason in `extra_logs`.
    """
    check_responses(len(body.query), services)
    groups = await request.run(body.groups, endings_of(services))
    rewards = await rewards_of(groups, options.rule(services.defaults), services, caller)
    return await answer_with(partial(OpenRlhfOut.of, rewards), rewards, request)


@router.post("/rewards/slime", response_model=SlimeOut, responses=REWARD_RESPONSES)
async def reward_slime(
    body: SlimeIn,
    options: Annotated[RewardQuery, Query()],
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Rewards a sample of slime against the reference in `label`.

    slime sends the body; options are in the URL. A missing reward is 0, with a 1 under its reason.
    """
    group = await request.run(body.group, endings_of(services))
    rewards = await rewards_of([group], options.rule(services.defaults), services, caller)
    return await answer_with(partial(SlimeOut.of, rewards[0]), rewards, request)


@router.post("/rewards/nemo-gym/verify", response_model=NemoVerifyOut, responses=REWARD_RESPONSES)
async def reward_nemo_gym_verify(
    body: NemoVerifyIn,
    options: Annotated[ReferenceQuery, Query()],
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Rewards a rollout of NeMo Gym against a reference in the body.

    NeMo Gym sends the body; options are in the URL. A missing reward is 0 with `mask_sample`, which
    excludes the sample from NeMo Gym's scores.
    """
    group = await request.run(body.group, options.reference_key)
    rewards = await rewards_of([group], options.rule(services.defaults), services, caller)
    return await answer_with(partial(NemoVerifyOut.of, body, rewards[0]), rewards, request)


@router.post("/rewards/nemo-gym/compare", response_model=NemoCompareOut, responses=REWARD_RESPONSES)
async def reward_nemo_gym_compare(
    body: NemoCompareIn,
    options: Annotated[CompareQuery, Query()],
    request: JsonRequest,
    services: CurrentServices,
    caller: CurrentCaller,
) -> Response:
    """Rewards responses of NeMo Gym by comparing them with each other.

    Likewise, options are in the URL. A missing reward is 0, and `metrics` counts the reasons.
    """
    check_responses(len(body.response_objs), services)
    groups = await request.run(body.groups)
    rewards = await rewards_of(groups, options.rule(services.defaults), services, caller)
    return await answer_with(partial(NemoCompareOut.of, rewards), rewards, request)
