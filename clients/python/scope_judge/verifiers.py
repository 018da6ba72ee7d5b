"""Rewards for environments of verifiers (0.4): responses of one task, compared with each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verifiers.v1.envs.best_of_n.env import BestOfNEnv

from scope_judge.comparisons import Completion, Question
from scope_judge.reward_source import flags_of, shared_source

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

    from scope_judge.reward_source import RewardOptions

__all__ = ["ScopeEnv", "record_rewards"]

NAME = "scope_judge"


class ScopeEnv(BestOfNEnv):  # type: ignore[misc]
    """verifiers' best-of-n environment, whose attempts are rewarded by comparing them.

    Its settings come from the environment (`SCOPE_URL`, `SCOPE_REWARD_ALPHA`, ...). It does not
    record best-of-n's metrics `best` and `pass_at_n`: they would read a missing reward as 0.
    """

    async def finalize(self, task: Any, episode: Any) -> None:
        """Records the reward of each attempt; raises ScopeError if there are none."""
        await record_rewards(episode.traces)


async def record_rewards(
    traces: Sequence[Any],
    *,
    weight: float = 1.0,
    **options: "Unpack[RewardOptions]",
) -> None:
    """Compares the last answers of traces of one task, and records a reward for each.

    Call it in `finalize` of an environment. A trace without a reward has None under the name, which
    verifiers reads as "not scored", and is not trainable: verifiers adds up rewards, and a missing
    one would count as 0. The metrics `scope_judge/abstained` and so on have the reason.

    Args:
        traces: Finished traces, which share their task. Those that failed are left alone.
        weight: Weight of the reward beside others.
        **options: Address, key, rule and failures; see `RewardOptions`.

    Raises:
        ScopeError: There are no rewards.
        ValueError: A trace has no prompt.
    """
    finished = [trace for trace in traces if trace.ok]
    if not finished:
        return
    source = shared_source(**options)
    group = (_question(finished[0]), [_response(trace) for trace in finished])
    (rewards,) = await source.of_groups_async([group])
    for trace, reward in zip(finished, rewards, strict=True):
        for reason, flag in flags_of(reward).items():
            trace.record_metric(f"{NAME}/{reason}", flag)
        if reward.value is None:
            trace.rewards[NAME] = None
            trace.agent.trainable = False
        else:
            trace.record_reward(NAME, reward.value, weight)


def _question(trace: Any) -> Question:
    """The prompt of the trace's task: a text, or messages."""
    data = trace.task.data
    prompt = data.prompt
    if not prompt:
        raise ValueError("the task has no prompt, and the judge needs the question")
    messages = [] if not data.system_prompt else [{"role": "system", "content": data.system_prompt}]
    if isinstance(prompt, str):
        return [*messages, {"role": "user", "content": prompt}]
    return [*messages, *(message.model_dump(exclude_none=True) for message in prompt)]


def _response(trace: Any) -> Completion:
    """The text of the assistant's last message; empty if there is none."""
    for message in reversed(trace.messages):
        if message.role == "assistant":
            return message.content or ""
    return ""
