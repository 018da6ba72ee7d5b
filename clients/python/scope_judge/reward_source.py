"""Rewards for the adapters: their options, and every kind of "no reward" kept apart."""

import asyncio
import functools
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_args, get_type_hints
from weakref import WeakKeyDictionary

from scope_judge.async_client import AsyncScopeClient
from scope_judge.client import ScopeClient
from scope_judge.comparisons import Group, GroupRule, checked, group_fields, to_json
from scope_judge.errors import ScopeError, ServerError, UnavailableError
from scope_judge.records import Check, ItemError, NoReward, Rewards

# Why a response has no reward: the service's reasons; "unanswered": a request has no answer, and
# failures are not raised; "unreferenced": the reference is blank.
REASONS: tuple[str, ...] = (*get_args(NoReward), "unanswered", "unreferenced")
# A training that gets nothing but these learns nothing.
_NOT_JUDGING = ("suspended", "unanswered")
_STOP_AFTER_S = 3600.0
_UNANSWERED = (UnavailableError, ServerError)

# A longer response fits into no judge's context, and would make the request of its group too large.
# Measured as JSON, in which most letters outside ASCII take six bytes.
_MOST_BYTES = 1_000_000

logger = logging.getLogger("scope_judge")


Failures = Literal["raise", "none"]

# Option -> variable that is read if the option is not given.
VARIABLES: Mapping[str, str] = {
    "alpha": "SCOPE_REWARD_ALPHA",
    "guarantee": "SCOPE_REWARD_GUARANTEE",
    "delta": "SCOPE_REWARD_DELTA",
    "calibration": "SCOPE_REWARD_CALIBRATION",
    "opponents": "SCOPE_REWARD_OPPONENTS",
    "reward": "SCOPE_REWARD_KIND",
    "empty": "SCOPE_REWARD_EMPTY",
    "thoughts": "SCOPE_REWARD_THOUGHTS",
    "overlong": "SCOPE_REWARD_OVERLONG",
    "min_accepted": "SCOPE_REWARD_MIN_ACCEPTED",
    "failures": "SCOPE_REWARD_FAILURES",
    "timeout_s": "SCOPE_REWARD_TIMEOUT_S",
    "patience_s": "SCOPE_REWARD_PATIENCE_S",
    "stop_after_s": "SCOPE_REWARD_STOP_AFTER_S",
}


class Connection(TypedDict, total=False):
    """Arguments of the client."""

    url: str | None
    api_key: str | None
    timeout_s: float
    patience_s: float | None


class RewardOptions(GroupRule, Connection, total=False):
    """Options of every adapter.

    An option that is left out comes from its variable in the environment, such as
    SCOPE_REWARD_ALPHA, or else is the service's default. `failures` says what happens if the
    service does not answer: "raise" raises the error, and "none" gives no reward. After
    `stop_after_s` in which judging was suspended or unanswered, UnavailableError is raised in any
    case.
    """

    failures: Failures
    stop_after_s: float


def resolved(
    options: RewardOptions | Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> RewardOptions:
    """The options with those of the environment; the service checks the values of the rule."""
    given = checked(options, RewardOptions)
    _check_names(environment)
    for name, variable in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if name not in given and text:
            given[name] = _parsed(name, text, variable)
    failures = given.get("failures", "raise")
    if failures not in get_args(Failures):
        raise ValueError(f"failures must be raise or none, and is {str(failures)[:40]!r}")
    return cast(RewardOptions, given)


def _check_names(environment: Mapping[str, str]) -> None:
    """Refuses a variable whose name is misspelled, so that no setting is silently left out."""
    for name in environment:
        if name.startswith("SCOPE_REWARD_") and name not in VARIABLES.values():
            of_client = name.replace("REWARD_", "")
            known = of_client in ("SCOPE_URL", "SCOPE_API_KEY")
            near = [of_client] if known else get_close_matches(name, VARIABLES.values(), 1)
            raise ValueError(
                f"there is no variable {name}" + (f"; did you mean {near[0]}?" if near else "")
            )


def _parsed(name: str, text: str, variable: str) -> Any:
    """The value of a variable."""
    if name == "alpha" and text == "null":
        return None
    if name in ("alpha", "delta", "timeout_s", "patience_s", "stop_after_s"):
        return _number(float, text, variable)
    if name == "opponents" and text != "all":
        return _number(int, text, variable)
    if name == "min_accepted":
        return _number(float if "." in text else int, text, variable)
    return text


def _number(kind: type[int] | type[float], text: str, variable: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{variable} must be a number, got {text[:40]!r}") from None


class Reward(NamedTuple):
    """The reward of one response, from -1 to 1; or None, with one of REASONS."""

    value: float | None
    reason: str | None


class RewardSource:
    """Asks a service for rewards; threads and event loops can share it."""

    def __init__(self, options: RewardOptions) -> None:
        self._options = options
        rule: dict[str, Any] = dict(options)
        self._is_tolerant = rule.pop("failures", "raise") == "none"
        self._stop_after_s = rule.pop("stop_after_s", _STOP_AFTER_S)
        names = get_type_hints(Connection)
        self._connection: Any = {name: rule.pop(name) for name in names if name in rule}
        self._rule: Any = rule
        # There is one opponent, the reference.
        self._reference_rule: Any = {
            name: value for name, value in rule.items() if name not in ("opponents", "min_accepted")
        }
        self._client: ScopeClient | None = None
        # Since when there has been no judgment; None while there are some.
        self._silent_since_s: float | None = None
        # Connections belong to the event loop that has opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncScopeClient] = (
            WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[type["RewardSource"], tuple[RewardOptions]]:
        # Trainers send reward functions to other processes, and connections cannot go with them.
        return RewardSource, (self._options,)

    def check(self) -> Check:
        """Checks the address, the key and the rule with one judged group."""
        with ScopeClient(**self._connection) as client:
            return client.check(**self._rule)

    def of_groups(self, groups: Sequence[Group]) -> list[list[Reward]]:
        """The rewards of the responses of each group.

        With `failures="none"`, a response that is not one text, or too long for a request, is
        "failed", and the others are compared without it; so are all responses of a group that does
        not fit into one request.

        Raises:
            ScopeError: A group has no rewards, and failures are raised; or its request is at fault.
            UnavailableError: Judging has been suspended or unanswered for `stop_after_s`.
        """
        asked = self._asked(groups)
        waiting = [one.group for one in asked if one.places]
        return self._rewards(asked, self._ask(waiting) if waiting else [])

    async def of_groups_async(self, groups: Sequence[Group]) -> list[list[Reward]]:
        """The rewards of the responses of each group, as `of_groups`.

        Calls of the same few milliseconds are sent as one batch.
        """
        asked = self._asked(groups)
        waiting = [one.group for one in asked if one.places]
        return self._rewards(asked, await asyncio.gather(*map(self._outcome, waiting)))

    def _asked(self, groups: Sequence[Group]) -> list["_Asked"]:
        return [_Asked.of(group, tolerant=self._is_tolerant) for group in groups]

    def _rewards(
        self, asked: Sequence["_Asked"], outcomes: Iterable["_Outcome"]
    ) -> list[list[Reward]]:
        """The rewards of groups, given the outcomes of those with responses to send."""
        remaining = iter(outcomes)
        rewards = [self._of_one(one, next(remaining) if one.places else None) for one in asked]
        self._stop_if_silent([reward for group in rewards for reward in group])
        return rewards

    def _stop_if_silent(self, rewards: Sequence[Reward]) -> None:
        """Raises UnavailableError if nothing has been judged for too long."""
        reasons = {reward.reason for reward in rewards}
        if not reasons or not reasons <= set(_NOT_JUDGING):
            self._silent_since_s = None
            return
        now = time.monotonic()
        self._silent_since_s = since = self._silent_since_s or now
        if now - since >= self._stop_after_s:
            why = " and ".join(map(str, reasons))
            raise UnavailableError(
                f"no response was judged for {now - since:.0f} s ({why}), "
                "so that the training learns nothing: look at the service, and at the alarm of the "
                "calibration set; `stop_after_s` says how long a training goes on without",
                code="no_rewards",
            )

    def _ask(self, groups: Sequence[Group]) -> list["_Outcome"]:
        if self._client is None:
            self._client = ScopeClient(**self._connection)
        outcomes: list[_Outcome] = []
        try:
            for outcome in self._client.rewards_many(groups, **self._rule):
                outcomes.append(outcome)
        except ScopeError as exc:
            outcomes += [exc] * (len(groups) - len(outcomes))
        return outcomes

    async def _outcome(self, group: Group) -> "_Outcome":
        client, fields = self._client_of_loop(), dict(group_fields(group))
        try:
            if "reference" in fields:
                return await client.reference_rewards(**fields, **self._reference_rule)
            return await client.group_rewards(**fields, **self._rule)
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
            client = self._clients[loop] = AsyncScopeClient(**self._connection)
        return client

    def _of_one(self, asked: "_Asked", outcome: "_Outcome | None") -> list[Reward]:
        """The rewards of a group; logs an error that leaves it without, and raises all others."""
        rewards = [Reward(None, asked.reason)] * len(asked.fields["responses"])
        if outcome is None:
            return rewards
        if isinstance(outcome, Rewards):
            found = zip(asked.places, outcome.rewards, outcome.reasons, strict=True)
            for place, value, reason in found:
                rewards[place] = Reward(value, reason)
            return rewards
        error = outcome.error.exception() if isinstance(outcome, ItemError) else outcome
        # The texts of one group may be too long; that a group has too many comparisons is a fault
        # of the rule, and no group would ever get a reward.
        is_long = error.code == "body_too_large"
        if not self._is_tolerant or not (is_long or isinstance(error, _UNANSWERED)):
            raise error
        logger.warning("%d responses get no reward: %s", len(asked.places), error)
        why = "failed" if is_long else "unanswered"
        for place in asked.places:
            rewards[place] = Reward(None, why)
        return rewards


_Outcome = Rewards | ItemError | ScopeError


@dataclass(frozen=True, slots=True)
class _Asked:
    """A group that the service is asked for, with the places of the responses that are sent."""

    fields: Mapping[str, Any]
    places: list[int]
    reason: str = "failed"

    @classmethod
    def of(cls, group: Group, *, tolerant: bool) -> "_Asked":
        fields = group_fields(group)
        responses = fields["responses"]
        if "reference" in fields and _is_blank(fields["reference"]):
            return cls(fields, [], "unreferenced")
        every = range(len(responses))
        return cls(fields, [i for i in every if not tolerant or is_readable(responses[i])])

    @property
    def group(self) -> Group:
        return {**self.fields, "responses": [self.fields["responses"][i] for i in self.places]}


def _is_blank(reference: Any) -> bool:
    return reference is None or (isinstance(reference, str) and not reference.strip())


def is_readable(response: Any) -> bool:
    """Whether a response is a text that can be sent, or one message of the assistant with it."""
    if isinstance(response, Sequence) and not isinstance(response, str) and len(response) == 1:
        (response,) = response
    if isinstance(response, Mapping):
        calls = response.get("tool_calls") or response.get("function_call")
        if response.get("role") != "assistant" or calls:
            return False
        response = response.get("content")
        if isinstance(response, Sequence) and not isinstance(response, str):
            texts = [part.get("text") if isinstance(part, Mapping) else None for part in response]
            return all(isinstance(text, str) and _is_sendable(text) for text in texts)
    return isinstance(response, str) and _is_sendable(response)


def _is_sendable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return len(to_json(text)) <= _MOST_BYTES


@functools.cache
def shared_source(**options: Any) -> RewardSource:
    """The source with these options, for functions that a trainer calls once for each sample."""
    return RewardSource(resolved(options))


def flags_of(reward: Reward) -> dict[str, int]:
    """The reason of a missing reward as one number for each reason, which trainers can log."""
    return {reason: int(reward.reason == reason) for reason in REASONS}


def metrics_of(rewards: Sequence[Reward], with_reference: Sequence[Reward]) -> dict[str, float]:
    """The shares that trainers log.

    They are the share of responses without a reward by its reason, and for `with_reference`, the
    rewards of the same responses compared with references, `coverage`, the share of accepted
    comparisons, and `win_rate`, the share of wins among these.
    """
    reasons = [reward.reason for reward in rewards]
    shares = {reason: reasons.count(reason) / max(1, len(reasons)) for reason in REASONS}
    accepted = [reward.value for reward in with_reference if reward.value is not None]
    if with_reference:
        shares["coverage"] = len(accepted) / len(with_reference)
    if accepted:
        shares["win_rate"] = sum(value > 0 for value in accepted) / len(accepted)
    return {f"scope_judge/{name}": share for name, share in shares.items()}
