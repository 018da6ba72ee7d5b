"""Rewards for the adapters: asks the service, and keeps every kind of "no reward" apart."""

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from scope_judge.answers import GroupRewards
from scope_judge.async_client import AsyncScopeClient
from scope_judge.client import ScopeClient
from scope_judge.comparisons import Completion, Group, Question
from scope_judge.errors import ScopeError, ServerError, UnavailableError
from scope_judge.reward_settings import RewardSettings

# Why a response has no reward. The first five are the service's reasons; "unanswered" is a request
# without an answer, if failures are not raised.
REASONS = ("abstained", "failed", "tied", "empty", "unopposed", "unanswered")
_UNANSWERED = (UnavailableError, ServerError)

logger = logging.getLogger("scope_judge")


class Reward(NamedTuple):
    """The reward of one response.

    Args:
        value: From -1 to 1; None for no reward.
        reason: One of REASONS if there is no reward; otherwise None.
    """

    value: float | None
    reason: str | None


class RewardSource:
    """Asks a service for rewards; threads and event loops can share it.

    Args:
        settings: The address, the rule, and what happens to an unanswered request.
    """

    def __init__(self, settings: RewardSettings) -> None:
        self._settings = settings
        self._client: ScopeClient | None = None
        # Connections belong to the event loop that has opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncScopeClient] = (
            WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[type["RewardSource"], tuple[RewardSettings]]:
        # Trainers send reward functions to other processes, and connections cannot go with them.
        return RewardSource, (self._settings,)

    def of_groups(self, groups: Sequence[Group]) -> list[list[Reward]]:
        """The rewards of the responses of each group.

        A group with one response is not sent: its response is unopposed.

        Raises:
            ScopeError: There are no rewards, and failures are raised; or the request is at fault.
        """
        if self._client is None:
            self._client = ScopeClient(**self._settings.connection)
        asked = _comparable(groups)
        answered: list[GroupRewards] = []
        try:
            for rewards in self._client.rewards_many(asked, progress=False, **self._settings.rule):
                answered.append(rewards)
        except ScopeError as exc:
            self._check(exc)
        return _in_place(groups, answered)

    async def of_groups_async(self, groups: Sequence[Group]) -> list[list[Reward]]:
        """The rewards of the responses of each group, as `of_groups`."""
        asked = _comparable(groups)
        answered: list[GroupRewards] = []
        try:
            answers = self._client_of_loop().rewards_many(
                asked, progress=False, **self._settings.rule
            )
            async for rewards in answers:
                answered.append(rewards)
        except ScopeError as exc:
            self._check(exc)
        return _in_place(groups, answered)

    async def against_reference(
        self, question: Question, response: Completion, reference: Completion
    ) -> Reward:
        """The reward of a response that is compared with a reference.

        Raises:
            ScopeError: There is no reward, and failures are raised; or the request is at fault.
        """
        rule = self._settings.reference_rule
        client = self._client_of_loop()
        try:
            answer = await client.reference_rewards(question, [response], reference, **rule)
        except ScopeError as exc:
            self._check(exc)
            return Reward(None, "unanswered")
        return _rewards(answer)[0]

    async def aclose(self) -> None:
        """Closes the connections, of asynchronous ones those of the running event loop."""
        if self._client is not None:
            self._client.close()
            self._client = None
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client_of_loop(self) -> AsyncScopeClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = AsyncScopeClient(**self._settings.connection)
        return client

    def _check(self, error: ScopeError) -> None:
        """Logs an error that leaves responses without a reward; raises all others."""
        if self._settings.failures == "raise" or not isinstance(error, _UNANSWERED):
            raise error
        logger.warning("responses get no reward: %s", error)


@functools.cache
def shared_source(**options: Any) -> RewardSource:
    """The source with these options, for functions that a trainer calls once for each sample."""
    return RewardSource(RewardSettings.of(options))


def _comparable(groups: Sequence[Group]) -> list[Group]:
    return [(question, responses) for question, responses in groups if len(responses) > 1]


def _in_place(groups: Sequence[Group], judged: Sequence[GroupRewards]) -> list[list[Reward]]:
    """The rewards of all groups: the judged ones in order, and none for the others."""
    answers = iter(judged)
    rewards = []
    for _, responses in groups:
        answer = next(answers, None) if len(responses) > 1 else None
        if answer is not None:
            rewards.append(_rewards(answer))
        else:
            reason = "unanswered" if len(responses) > 1 else "unopposed"
            rewards.append([Reward(None, reason) for _ in responses])
    return rewards


def _rewards(answer: GroupRewards) -> list[Reward]:
    return [Reward(*pair) for pair in zip(answer.rewards, answer.reasons, strict=True)]


def flags_of(reward: Reward) -> dict[str, int]:
    """The reason of a missing reward as one number for each reason, which trainers can log."""
    return {reason: int(reward.reason == reason) for reason in REASONS}
