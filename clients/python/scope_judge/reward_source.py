"""Rewards for the adapters: asks the service, and keeps every kind of "no reward" apart."""

import asyncio
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from scope_judge.answers import Check, GroupRewards, ItemError
from scope_judge.async_client import AsyncScopeClient
from scope_judge.client import ScopeClient
from scope_judge.comparisons import Group, group_fields, text_of, to_json
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

    def check(self) -> Check:
        """Checks the address, the key and the rule with one judged group.

        Raises:
            ScopeError: The service cannot be used with these settings.
        """
        with ScopeClient(**self._settings.connection) as client:
            return client.check(**self._settings.rule)

    def of_groups(self, groups: Sequence[Group]) -> list[list[Reward]]:
        """The rewards of the responses of each group.

        Raises:
            ScopeError: A group has no rewards, and failures are raised; or its request is at fault.
        """
        if self._client is None:
            self._client = ScopeClient(**self._settings.connection)
        outcomes: list[_Outcome] = []
        try:
            for outcome in self._client.rewards_many(groups, progress=False, **self._settings.rule):
                outcomes.append(outcome)
        except ScopeError as exc:
            outcomes += [exc] * (len(groups) - len(outcomes))
        return self._rewards(groups, outcomes)

    async def of_groups_async(self, groups: Sequence[Group]) -> list[list[Reward]]:
        """The rewards of the responses of each group, as `of_groups`.

        Calls of the same few milliseconds are sent as one batch.
        """
        outcomes = await asyncio.gather(*map(self._outcome, groups))
        return self._rewards(groups, outcomes)

    async def _outcome(self, group: Group) -> "_Outcome":
        client, fields = self._client_of_loop(), dict(group_fields(group))
        try:
            if "reference" in fields:
                return await client.reference_rewards(**fields, **self._settings.reference_rule)
            return await client.group_rewards(**fields, **self._settings.rule)
        except ScopeError as exc:
            return exc

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

    def _rewards(
        self, groups: Sequence[Group], outcomes: Sequence["_Outcome"]
    ) -> list[list[Reward]]:
        """The rewards in the outcomes, after the comparisons were written."""
        judged = [(group_fields(group), each) for group, each in zip(groups, outcomes, strict=True)]
        if self._settings.comparisons_file is not None:
            rows = (row for group, outcome in judged for row in _comparisons(group, outcome))
            _append(self._settings.comparisons_file, b"".join(to_json(row) + b"\n" for row in rows))
        return [self._of_one(group["responses"], outcome) for group, outcome in judged]

    def _of_one(self, responses: Sequence[Any], outcome: "_Outcome") -> list[Reward]:
        """The rewards of a group; logs an error that leaves it without, and raises all others."""
        if isinstance(outcome, GroupRewards):
            return [Reward(*both) for both in zip(outcome.rewards, outcome.reasons, strict=True)]
        error = outcome.error.exception() if isinstance(outcome, ItemError) else outcome
        if self._settings.failures == "raise" or not isinstance(error, _UNANSWERED):
            raise error
        logger.warning("%d responses get no reward: %s", len(responses), error)
        return [Reward(None, "unanswered")] * len(responses)


_Outcome = GroupRewards | ItemError | ScopeError


@functools.cache
def shared_source(**options: Any) -> RewardSource:
    """The source with these options, for functions that a trainer calls once for each sample."""
    return RewardSource(RewardSettings.of(options))


def _comparisons(group: Mapping[str, Any], outcome: _Outcome) -> Iterator[dict[str, Any]]:
    """Each judged comparison of a group in the fields of POST /judge and its answer."""
    if not isinstance(outcome, GroupRewards):
        return
    responses = group["responses"]
    for one in outcome.comparisons or ():
        other = group["reference"] if one.b is None else responses[one.b]
        yield {
            "question": group["question"],
            "response_a": text_of(responses[one.a]),
            "response_b": text_of(other),
            "with_reference": one.b is None,
            **asdict(one.judgment),
        }


def _append(file: Path, lines: bytes) -> None:
    """Appends lines in one write, so that those of several processes do not mix."""
    with file.open("ab", buffering=0) as opened:
        opened.write(lines)


def flags_of(reward: Reward) -> dict[str, int]:
    """The reason of a missing reward as one number for each reason, which trainers can log."""
    return {reason: int(reward.reason == reason) for reason in REASONS}


def metrics_of(rewards: Sequence[Reward], with_reference: Sequence[Reward]) -> dict[str, float]:
    """The shares that trainers log.

    Args:
        rewards: The rewards of all responses.
        with_reference: Rewards of the same responses compared with references; empty without.

    Returns:
        The share of responses without a reward by its reason, and with references `coverage`, the
        share of responses whose comparison was accepted, and `win_rate`, the share of wins among
        these, which is missing if there are none.
    """
    reasons = [reward.reason for reward in rewards]
    shares = {reason: reasons.count(reason) / max(1, len(reasons)) for reason in REASONS}
    accepted = [reward.value for reward in with_reference if reward.value is not None]
    if with_reference:
        shares["coverage"] = len(accepted) / len(with_reference)
    if accepted:
        shares["win_rate"] = sum(value > 0 for value in accepted) / len(accepted)
    return {f"scope_judge/{name}": share for name, share in shares.items()}
