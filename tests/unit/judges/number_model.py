"""A reward model for tests: it rewards the numbers in responses, and notes its passes."""

from collections.abc import Callable, Sequence
from typing import Any

from app.core.errors import PromptTooLongError
from app.core.fingerprint import JudgeIdentity
from app.judges.reward_model import RewardModelScorer, reward_identity
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Conversation, OnStage, PromptError, no_stage

INPUTS: dict[str, Any] = {
    "judge": "skywork",
    "architecture": "Qwen3ForSequenceClassification",
    "weights": "a09a35458c702b33eeacc393d103063234e8bc28",
    "chat_frame": "<|im_start|>user\n{user}<|im_end|>\n"
    "<|im_start|>assistant\n{assistant}<|im_end|>\n",
    "dtype": "bfloat16",
    "head_dtype": "float32",
    "max_prompt_tokens": 32_768,
}
MODEL = reward_identity(**INPUTS)
LONGEST = 1000


def by_number(conversation: Conversation) -> float | PromptError:
    """Reward of a response that is a number; 0 for another text."""
    text = conversation[-1].content
    if len(text) > LONGEST:
        return PromptTooLongError("the conversation is too long")
    try:
        return float(text)
    except ValueError:
        return 0.0


class NumberModel:
    """Rewards each conversation by a function."""

    def __init__(self, reward: Callable[[Conversation], float | PromptError] = by_number) -> None:
        self._reward = reward
        self.calls: list[list[Conversation]] = []

    async def start(self, on_stage: OnStage = no_stage) -> JudgeIdentity:
        return MODEL

    async def stop(self) -> None:
        pass

    async def rewards(
        self, conversations: Sequence[Conversation], times: CallTimes | None = None
    ) -> list[float | PromptError]:
        self.calls.append(list(conversations))
        return [self._reward(conversation) for conversation in conversations]


async def scorer_of(model: NumberModel) -> RewardModelScorer:
    return await RewardModelScorer(model, Telemetry.on_own_registry()).start()
