"""Reward functions for TRL's GRPOTrainer and RLOOTrainer (TRL 1.6 or newer)."""

import functools
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scope_judge.answers import Check
from scope_judge.comparisons import Completion, Group, Question
from scope_judge.errors import ScopeError
from scope_judge.reward_settings import RewardSettings
from scope_judge.reward_source import Reward, RewardSource, metrics_of

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

    from scope_judge.reward_settings import RewardOptions

__all__ = ["AsyncScopeReward", "ScopeReward", "scope_reward"]

# Older trainers take a None of all reward functions for the reward 0.
_OLDEST_TRL = (1, 6)

logger = logging.getLogger("scope_judge")


class _Batch(NamedTuple):
    """The completions of a batch, or of the batches of all processes.

    Args:
        prompts: The prompt of each completion.
        completions: The completions.
        references: The reference of each completion; empty without.
    """

    prompts: Sequence[Question]
    completions: Sequence[Completion]
    references: Sequence[Completion] = ()

    def runs(self, longest: int | None) -> list[range]:
        """The runs of completions with the same prompt and the same reference."""
        if not self.references:
            return groups_of(self.prompts, longest)
        return groups_of(list(zip(self.prompts, self.references, strict=True)), longest)

    def group(self, run: range) -> Group:
        """The completions of a run, which are compared with each other."""
        return self.prompts[run.start], self.completions[run.start : run.stop]

    def group_with_reference(self, run: range) -> Group:
        """The completions of a run, which are compared with their reference."""
        question, completions = self.prompts[run.start], self.completions[run.start : run.stop]
        return question, completions, self.references[run.start] or ""


class _Row(NamedTuple):
    """The reward of a completion, and that of its comparison with the reference, if it has one."""

    reward: Reward
    with_reference: Reward | None = None


class _Grouped:
    """The part that both reward functions have in common."""

    def __init__(
        self,
        *,
        num_generations: int | None = None,
        reference: str | None = None,
        against: Literal["group", "reference"] = "group",
        check: bool = True,
        **options: "Unpack[RewardOptions]",
    ) -> None:
        _check_version()
        if against not in ("group", "reference"):
            raise ValueError(f"against must be group or reference, got {str(against)[:40]!r}")
        if against == "reference" and reference is None:
            raise ValueError('against="reference" needs reference, the column of the references')
        self._source = RewardSource(RewardSettings.of(options))
        self._num_generations = num_generations
        self._reference = reference
        self._compares_groups = against == "group"
        # TRL logs "rewards/scope_reward/mean".
        self.__name__ = "scope_reward"
        if check and (warning := self.check().warning):
            logger.warning("%s", warning)

    def check(self) -> Check:
        """Checks the address, the key and the rule with one judged group.

        Raises:
            ScopeError: The service cannot be used with these options; see `ScopeClient.check`.
        """
        return self._source.check()

    def _batch(
        self,
        prompts: Sequence[Question],
        completions: Sequence[Completion],
        columns: Mapping[str, Any],
    ) -> _Batch:
        if self._reference is None:
            return _Batch(prompts, completions)
        if self._reference not in columns:
            raise ValueError(f"the data set has no column {self._reference!r} with references")
        return _Batch(prompts, completions, columns[self._reference])

    def _asked(self, batch: _Batch, runs: Sequence[range]) -> list[Group]:
        """The groups of some runs; those with a reference follow the others."""
        groups = list(map(batch.group, runs)) if self._compares_groups else []
        return groups + (list(map(batch.group_with_reference, runs)) if batch.references else [])

    def _rows(self, runs: Sequence[range], answers: Sequence[Sequence[Reward]]) -> dict[int, _Row]:
        """The answers to the groups that were asked for, by the index of the completion."""
        rewards = [reward for of_run in answers for reward in of_run]
        places = [i for run in runs for i in run]
        if self._reference is None:
            rows = list(map(_Row, rewards))
        elif self._compares_groups:
            rows = list(map(_Row, rewards[: len(places)], rewards[len(places) :]))
        else:
            rows = list(map(_Row, rewards, rewards))
        return dict(zip(places, rows, strict=True))


class ScopeReward(_Grouped):
    """A synchronous reward function that compares the completions of each prompt with each other.

    None is a missing reward: TRL leaves it out of the group's mean, and gives it the advantage 0.
    With several processes, the groups are gathered first, so that a group that is split over
    processes is judged as a whole.

    Args:
        num_generations: Longest group; needed only if equal prompts may follow each other in the
            data set. By default a group is a run of equal prompts.
        reference: Column of the data set with a reference answer to each prompt. Each completion is
            compared with it, and `scope_judge/win_rate` and `scope_judge/coverage` are logged.
        against: The opponents that make the reward: the "group", or the "reference" alone.
        check: Whether to judge one group at once, so that a wrong option, address or key is an
            error before the training begins.
        **options: Address, key, rule and failures; see `RewardOptions`.

    Raises:
        TypeError: An option has an unknown name.
        ValueError: An option has an impossible value.
        RuntimeError: TRL is too old: it would take no reward for the reward 0.
        ScopeError: The check has failed.
    """

    def __call__(
        self, prompts: Sequence[Question], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """The reward of each completion; None for no reward.

        Args:
            prompts: The prompt of each completion: a text, or messages.
            completions: Each is a text, or a list with one message of the assistant.
            **columns: Further arguments of TRL, of which `log_metric`, `log_extra` and the
                column of the references are used.

        Raises:
            ScopeError: There are no rewards.
            ValueError: The data set has no column of that name.
        """
        batch = self._batch(prompts, completions, columns)
        return _logged(_gathered(batch, self._judged), columns)

    def _judged(self, batch: _Batch, begin: int, end: int) -> dict[int, _Row]:
        """The rewards of the runs that begin in a range, by the index of the completion."""
        mine = [run for run in batch.runs(self._num_generations) if begin <= run.start < end]
        return self._rows(mine, self._source.of_groups(self._asked(batch, mine)))


class AsyncScopeReward(_Grouped):
    """An asynchronous reward function, which TRL runs at the same time as other asynchronous ones.

    With several processes, a part of a group that is on one process is judged by itself, because
    an event loop must not wait for other processes. A warning says so. Use `ScopeReward` to have
    such groups gathered.

    Args:
        **options: The arguments and options of `ScopeReward`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._warned = False

    async def __call__(
        self, prompts: Sequence[Question], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """The reward of each completion, as `ScopeReward`."""
        batch = self._batch(prompts, completions, columns)
        runs = batch.runs(self._num_generations)
        self._warn_of_parts(runs)
        answers = await self._source.of_groups_async(self._asked(batch, runs))
        rows = self._rows(runs, answers)
        return _logged([rows[i] for i in range(len(prompts))], columns)

    def _warn_of_parts(self, groups: Sequence[range]) -> None:
        if self._warned or not self._compares_groups or _process_state() is None:
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


def groups_of(prompts: Sequence[Any], longest: int | None = None) -> list[range]:
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


def _gathered(batch: _Batch, judged: Callable[[_Batch, int, int], dict[int, _Row]]) -> list[_Row]:
    """The rewards of this process's completions, each group judged by the process of its first.

    Raises:
        ScopeError: Any process has no rewards. All raise it: a process that waited for another one
            that has ended would wait forever.
        TypeError: A completion of any process is none.
    """
    state = _process_state()
    own = len(batch.prompts)
    if state is None:
        by_index = judged(batch, 0, own)
        return [by_index[i] for i in range(own)]
    from accelerate.utils import gather_object

    everything = _Batch(*(gather_object(list(column)) for column in batch))
    counts: list[int] = gather_object([own])
    begin = sum(counts[: state.process_index])
    end = begin + own
    outcome: dict[int, _Row] | ScopeError | TypeError
    try:
        outcome = judged(everything, begin, end)
    except (ScopeError, TypeError) as exc:
        outcome = exc
    rewards: dict[int, _Row] = {}
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


def _logged(rows: Sequence[_Row], columns: Mapping[str, Any]) -> list[float | None]:
    """The values of the rewards, after the metrics and the reasons of missing ones were logged."""
    log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
    rewards = [row.reward for row in rows]
    with_reference = [row.with_reference for row in rows if row.with_reference is not None]
    if log_metric is not None:
        for name, share in metrics_of(rewards, with_reference).items():
            log_metric(name, share)
    if log_extra is not None:
        log_extra("scope_judge", [reward.reason or "rewarded" for reward in rewards])
    return [reward.value for reward in rewards]
