"""Answers of POST /rewards/openrlhf.

OpenRLHF has no value for "no reward". It is a 0, with a 1 beside it under the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from app.judging.rewarder import GroupRewards
from scope_judge.records import NoReward

# A response that is compared with a reference has one comparison.
_FLAGS = tuple(
    reason for reason in get_args(NoReward) if reason not in ("unopposed", "few_accepted")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRlhfRewards:
    """The rewards of the samples; no reward is 0, with a 1 in one of `extra_logs`.

    Args:
        rewards: The reward of each sample; 0 also stands for no reward.
        scores: (reward + 1) / 2.
        extra_logs: For each reason of a missing reward, 1 or 0 for each sample.
    """

    rewards: tuple[float, ...]
    scores: tuple[float, ...]
    extra_logs: dict[str, tuple[int, ...]]


def openrlhf_rewards(groups: Sequence[GroupRewards]) -> OpenRlhfRewards:
    """Converts the rewards of samples."""
    rows = [group.standings[0] for group in groups]
    rewards = tuple(row.reward or 0.0 for row in rows)
    return OpenRlhfRewards(
        rewards=rewards,
        scores=tuple((reward + 1.0) / 2.0 for reward in rewards),
        extra_logs={name: tuple(int(row.reason == name) for row in rows) for name in _FLAGS},
    )
