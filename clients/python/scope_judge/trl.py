"""A reward function for TRL's GRPOTrainer and RLOOTrainer (TRL 1.6 or newer)."""

import functools
import itertools
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from scope_judge.comparisons import Completion, Group, Question
from scope_judge.processes import of_all_processes
from scope_judge.reward_source import Reward, RewardSource, metrics_of, resolved

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

    from scope_judge.reward_source import RewardOptions

__all__ = ["ScopeReward", "scope_reward"]

logger = logging.getLogger("scope_judge")
# Prompt, completion and reference.
_Row = tuple[Question, Completion, Completion]
_Rewarded = tuple[Reward, Reward | None]


class ScopeReward:
    """Compares the completions of each prompt with each other; None is a missing reward.

    TRL leaves None out of the group's mean, and gives it the advantage 0. A group is a run of equal
    prompts; the completions of all processes are gathered, so that a split group is judged whole.

    Args:
        reference: Column of the data set with a reference answer. Each completion is compared with
            it, too, and `scope_judge/win_rate` and `scope_judge/coverage` are logged.
        against: The opponents that make the reward: the "group", or the "reference" alone.
        check: Whether to judge one group at once, so that a wrong option fails before the training.
        **options: Address, key, rule and failures; see `RewardOptions`.

    Raises:
        RuntimeError: TRL is too old: it would take no reward for the reward 0.
        ScopeError: The check has failed.
        TypeError, ValueError: An option has an unknown name or an impossible value.
    """

    def __init__(
        self,
        *,
        reference: str | None = None,
        against: Literal["group", "reference"] = "group",
        check: bool = True,
        **options: "Unpack[RewardOptions]",
    ) -> None:
        _check_version()
        if against not in ("group", "reference") or (against == "reference" and not reference):
            raise ValueError('against must be "group", or "reference" with a column as reference')
        for option in ("opponents", "min_accepted"):
            if against == "reference" and option in options:
                raise ValueError(f'{option} has no effect with against="reference"')
        self._source = RewardSource(resolved(options))
        self._reference = reference
        self._compares_groups = against == "group"
        self.__name__ = "scope_reward"  # TRL logs "rewards/scope_reward/mean".
        if check and (warning := self._source.check().warning):
            logger.warning("%s", warning)

    def __call__(
        self, prompts: Sequence[Question], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """The reward of each completion; raises ScopeError if there are none."""
        if self._reference is not None and self._reference not in columns:
            raise ValueError(f"the data set has no column {self._reference!r} with references")
        references = columns.get(self._reference or "") or [None] * len(prompts)
        rows = list(zip(prompts, completions, [one or "" for one in references], strict=True))
        rewarded = of_all_processes(rows, self._judged)
        _log(rewarded, columns)
        return [reward.value for reward, _ in rewarded]

    def _judged(self, rows: Sequence[_Row]) -> list[_Rewarded]:
        """The reward of each row, and that of its comparison with the reference, if it has one."""
        runs = [list(run) for _, run in itertools.groupby(rows, lambda row: (row[0], row[2]))]
        asked: list[Group] = []
        if self._compares_groups:
            asked += [(run[0][0], [row[1] for row in run]) for run in runs]
        if self._reference is not None:
            asked += [(run[0][0], [row[1] for row in run], run[0][2]) for run in runs]
        rewards = list(itertools.chain(*self._source.of_groups(asked)))
        if len(rows) > 1 and all(reward.reason == "unopposed" for reward in rewards):
            logger.warning("no completion has an opponent: put those of a prompt side by side")
        if self._reference is None:
            return [(reward, None) for reward in rewards]
        return list(zip(rewards[: len(rows)], rewards[-len(rows) :], strict=True))


@functools.cache
def _of_environment() -> ScopeReward:
    return ScopeReward()


def scope_reward(*args: Any, **columns: Any) -> list[float | None]:
    """`ScopeReward` with the settings of the environment, for TRL's commands."""
    return _of_environment()(*args, **columns)


def _log(rewarded: Sequence[_Rewarded], columns: Mapping[str, Any]) -> None:
    """Logs the metrics and the reasons of missing rewards with TRL's own functions."""
    rewards = [reward for reward, _ in rewarded]
    compared = [other for _, other in rewarded if other is not None]
    log_metric = columns.get("log_metric", lambda name, share: None)
    for name, share in metrics_of(rewards, compared).items():
        log_metric(name, share)
    if log_extra := columns.get("log_extra"):
        log_extra("scope_judge", [reward.reason or "rewarded" for reward in rewards])


def _check_version() -> None:
    """Raises RuntimeError for a TRL that takes a None of all reward functions for 0."""
    try:
        installed = version("trl")
    except PackageNotFoundError:
        return
    if tuple(int(part) for part in installed.split(".")[:2]) < (1, 6):
        raise RuntimeError(f"trl {installed} takes a missing reward for 0: install 1.6 or newer")
