"""Reward functions for TRL's GRPOTrainer and RLOOTrainer (TRL 1.6 or newer)."""

import functools
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from scope_judge.comparisons import Completion, Group, Question
from scope_judge.errors import ScopeError
from scope_judge.reward_settings import RewardSettings
from scope_judge.reward_source import REASONS, Reward, RewardSource

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

    from scope_judge.reward_settings import RewardOptions

__all__ = ["AsyncScopeReward", "ScopeReward", "scope_reward"]

# Older trainers take a None of all reward functions for the reward 0.
_OLDEST_TRL = (1, 6)

logger = logging.getLogger("scope_judge")


class _Grouped:
    """The part that both reward functions have in common."""

    def __init__(
        self, *, num_generations: int | None = None, **options: "Unpack[RewardOptions]"
    ) -> None:
        _check_version()
        self._source = RewardSource(RewardSettings.of(options))
        self._num_generations = num_generations
        # TRL logs "rewards/scope_reward/mean".
        self.__name__ = "scope_reward"

    def _groups(self, prompts: Sequence[Question]) -> list[range]:
        return groups_of(prompts, self._num_generations)


class ScopeReward(_Grouped):
    """A synchronous reward function that compares the completions of each prompt with each other.

    None is a missing reward: TRL leaves it out of the group's mean, and gives it the advantage 0.
    With several processes, the groups are gathered first, so that a group that is split over
    processes is judged as a whole.

    Args:
        num_generations: Longest group; needed only if equal prompts may follow each other in the
            data set. By default a group is a run of equal prompts.
        **options: Address, key, rule and failures; see `RewardOptions`.

    Raises:
        TypeError: An option has an unknown name.
        ValueError: An option has an impossible value.
        RuntimeError: TRL is too old: it would take no reward for the reward 0.
    """

    def __call__(
        self, prompts: Sequence[Question], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """The reward of each completion; None for no reward.

        Args:
            prompts: The prompt of each completion: a text, or messages.
            completions: Each is a text, or a list with one message of the assistant.
            **columns: All that TRL passes besides, of which `log_metric` and `log_extra` are used.

        Raises:
            ScopeError: There are no rewards.
        """
        gathered = _gathered(prompts, completions, self._judged)
        return _logged(gathered, columns)

    def _judged(
        self,
        prompts: Sequence[Question],
        completions: Sequence[Completion],
        begin: int,
        end: int,
    ) -> dict[int, Reward]:
        """The rewards of the groups that begin in a range, by the index of the completion."""
        mine = [group for group in self._groups(prompts) if begin <= group.start < end]
        judged = self._source.of_groups([_group(prompts, completions, group) for group in mine])
        return {
            i: reward
            for group, rewards in zip(mine, judged, strict=True)
            for i, reward in zip(group, rewards, strict=True)
        }


class AsyncScopeReward(_Grouped):
    """An asynchronous reward function, which TRL runs at the same time as other asynchronous ones.

    With several processes, a part of a group that is on one process is judged by itself, because
    an event loop must not wait for other processes. A warning says so. Use `ScopeReward` to have
    such groups gathered.

    Args:
        num_generations: Longest group; see `ScopeReward`.
        **options: Address, key, rule and failures; see `RewardOptions`.
    """

    def __init__(
        self, *, num_generations: int | None = None, **options: "Unpack[RewardOptions]"
    ) -> None:
        super().__init__(num_generations=num_generations, **options)
        self._warned = False

    async def __call__(
        self, prompts: Sequence[Question], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """The reward of each completion, as `ScopeReward`."""
        groups = self._groups(prompts)
        self._warn_of_parts(groups)
        rewards_of_groups = await self._source.of_groups_async(
            [_group(prompts, completions, group) for group in groups]
        )
        return _logged([reward for rewards in rewards_of_groups for reward in rewards], columns)

    def _warn_of_parts(self, groups: Sequence[range]) -> None:
        if self._warned or _process_state() is None:
            return
        whole = self._num_generations or max(map(len, groups))
        if any(len(group) < whole for group in groups):
            self._warned = True
            logger.warning(
                "a group of completions is split over processes, and AsyncScopeReward compares "
                "each part by itself: use ScopeReward, or make the batch of a process "
                "(per_device_train_batch_size times steps_per_generation) a multiple of "
                "num_generations"
            )


def scope_reward(
    prompts: Sequence[Question], completions: Sequence[Completion], **columns: Any
) -> list[float | None]:
    """`ScopeReward` with the settings of the environment, for `--reward_funcs` of TRL's commands.

    Raises:
        ScopeError: There are no rewards.
    """
    return _of_environment()(prompts, completions, **columns)


@functools.cache
def _of_environment() -> ScopeReward:
    return ScopeReward()


def groups_of(prompts: Sequence[Question], longest: int | None = None) -> list[range]:
    """The runs of equal prompts.

    Args:
        prompts: The prompts.
        longest: A longer run is cut after this number; None for no limit.
    """
    groups: list[range] = []
    start = 0
    for i in range(1, len(prompts) + 1):
        if i == len(prompts) or prompts[i] != prompts[start] or i - start == longest:
            groups.append(range(start, i))
            start = i
    return groups


def _group(prompts: Sequence[Question], completions: Sequence[Completion], group: range) -> Group:
    return prompts[group.start], completions[group.start : group.stop]


def _gathered(
    prompts: Sequence[Question],
    completions: Sequence[Completion],
    judged: Callable[[Sequence[Question], Sequence[Completion], int, int], dict[int, Reward]],
) -> list[Reward]:
    """The rewards of this process's completions, each group judged by the process of its first.

    Raises:
        ScopeError: Any process has no rewards. All raise it: a process that waited for another one
            that has ended would wait forever.
        TypeError: A completion of any process is none.
    """
    state = _process_state()
    if state is None:
        by_index = judged(prompts, completions, 0, len(prompts))
        return [by_index[i] for i in range(len(prompts))]
    from accelerate.utils import gather_object

    everything = gather_object(list(zip(prompts, completions, strict=True)))
    counts: list[int] = gather_object([len(prompts)])
    begin = sum(counts[: state.process_index])
    end = begin + len(prompts)
    outcome: dict[int, Reward] | ScopeError | TypeError
    try:
        outcome = judged([p for p, _ in everything], [c for _, c in everything], begin, end)
    except (ScopeError, TypeError) as exc:
        outcome = exc
    rewards: dict[int, Reward] = {}
    for each in gather_object([outcome]):
        if isinstance(each, ScopeError | TypeError):
            raise each
        rewards |= each
    return [rewards[i] for i in range(begin, end)]


def _check_version() -> None:
    """Raises RuntimeError if an installed TRL cannot leave a reward out."""
    try:
        installed = version("trl")
    except PackageNotFoundError:
        return
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    if numbers and tuple(map(int, numbers.groups())) < _OLDEST_TRL:
        raise RuntimeError(
            f"trl {installed} treats a missing reward as 0: install trl 1.6 or newer"
        )


def _process_state() -> Any:
    """The state of the processes that train together; None for a single process."""
    # A trainer has imported it long ago; without it there is one process.
    if "accelerate" not in sys.modules:
        return None
    from accelerate import PartialState

    state = PartialState()
    return state if state.num_processes > 1 else None


def _logged(rewards: Sequence[Reward], columns: Mapping[str, Any]) -> list[float | None]:
    """The values of the rewards, after the reasons of the missing ones were logged."""
    log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
    reasons = [reward.reason for reward in rewards]
    if log_metric is not None:
        for reason in REASONS:
            log_metric(f"scope_judge/{reason}", reasons.count(reason) / max(1, len(reasons)))
    if log_extra is not None:
        log_extra("scope_judge", [reason or "rewarded" for reason in reasons])
    return [reward.value for reward in rewards]
