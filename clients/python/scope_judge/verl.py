"""The reward function of verl (0.9): `reward.custom_reward_function.path=pkg://scope_judge.verl`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scope_judge.comparisons import Completion, Question
from scope_judge.reward_source import flags_of, shared_source

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

    from scope_judge.reward_source import RewardOptions

__all__ = ["compute_score"]


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Completion,
    extra_info: Mapping[str, Any] | None = None,
    *,
    question_key: str = "question",
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    **options: "Unpack[RewardOptions]",
) -> dict[str, float]:
    """Compares a response with the reference response in `ground_truth`; to be awaited.

    Calls of the same few milliseconds are sent as one batch.

    verl has no value for "no reward". The score is then 0, and a 1 beside it says why. The keys are
    the same for every sample, as verl needs them.

    Args:
        data_source: Not used, like the arguments that begin with `reward_`.
        solution_str: The response.
        ground_truth: The reference response.
        extra_info: Fields of the sample, of which one is the question.
        question_key: The field of `extra_info` that is the question: a text, or messages.
        **options: Address, key, rule and failures; see `RewardOptions`. verl passes those of
            `reward.custom_reward_function.reward_kwargs`.

    Returns:
        `score` from -1 to 1, and the reasons as 0 or 1.

    Raises:
        ValueError: The sample has no question or no reference.
        ScopeError: There is no score.
    """
    question = (extra_info or {}).get(question_key)
    if question is None or (isinstance(question, str) and not question.strip()):
        raise ValueError(
            f"extra_info has no {question_key!r}, and the judge needs the question: write it into "
            "extra_info when you prepare the data, or name its field with "
            "reward.custom_reward_function.reward_kwargs.question_key"
        )
    if ground_truth is None or (isinstance(ground_truth, str) and not ground_truth.strip()):
        raise ValueError(
            "reward_model.ground_truth is empty, and the response is compared with it: write a "
            "reference response into it when you prepare the data"
        )
    group = (_plain(question), [solution_str], _plain(ground_truth))
    ((reward,),) = await shared_source(**options).of_groups_async([group])
    return {"score": reward.value or 0.0, **flags_of(reward)}


def _plain(value: Any) -> Question:
    """The value with lists where Parquet has arrays of numpy."""
    plain: Question = value.tolist() if hasattr(value, "tolist") else value
    return plain
