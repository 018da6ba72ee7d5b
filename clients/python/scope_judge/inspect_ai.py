"""A scorer for inspect_ai that compares the model's answer with the sample's target."""

from typing import TYPE_CHECKING, Any

from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState

from scope_judge.comparisons import Question
from scope_judge.reward_source import Reward, RewardSource, resolved

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

    from scope_judge.reward_source import RewardOptions

__all__ = ["scope_judge"]


@scorer(metrics=[accuracy(), stderr()])  # type: ignore[untyped-decorator]
def scope_judge(**options: "Unpack[RewardOptions]") -> Scorer:
    """Scores an answer as correct if it is accepted as better than the target, a response.

    A missing verdict is inspect's "unscored", which no metric counts: it is neither correct nor
    incorrect. Its reason is one of `reward_source.REASONS`.

    Args:
        **options: Address, key, rule and failures; see `RewardOptions`. With `reward="soft"` the
            value is p_bar, the probability that the answer is better, and the metric its mean.

    Raises:
        TypeError, ValueError: An option has an unknown name or an impossible value.
    """
    resolved_options = resolved(options)
    source = RewardSource(resolved_options)
    soft = resolved_options.get("reward") == "soft"

    async def score(state: TaskState, target: Target) -> Score:
        answer = state.output.completion
        group = (_question(state), [answer], target.text)
        ((reward,),) = await source.of_groups_async([group])
        return _score(reward, answer, soft=soft)

    return score


def _score(reward: Reward, answer: str, *, soft: bool) -> Score:
    if reward.value is None:
        return Score.unscored(reason=str(reward.reason), answer=answer)
    value: str | float = CORRECT if reward.value > 0 else INCORRECT
    if soft:
        value = (reward.value + 1.0) / 2.0
    return Score(value=value, answer=answer, metadata={"reward": reward.value})


def _question(state: TaskState) -> Question:
    """The sample's input: a text, or messages."""
    if isinstance(state.input, str):
        return state.input
    messages: list[dict[str, Any]] = [
        {"role": message.role, "content": message.text} for message in state.input
    ]
    return messages
