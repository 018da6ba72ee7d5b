"""Real vLLM runs reward models: as transformers computes them, with a float32 head, never cut."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from app.core.errors import PromptTooLongError
from app.core.fingerprint import JudgeIdentity
from app.judges.engines.vllm_reward import VllmRewardModel
from app.ports import CallTimes, PromptError
from app.settings import Settings
from tests.integration.engines.reward_checkpoint import (
    CONTEXT_TOKENS,
    conversation,
    conversations,
    rewards_by_transformers,
    write_reward_model,
)

pytestmark = [
    pytest.mark.vllm,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

# The chat template puts so many tokens around a question "x" and a response of "x"s.
TOKENS_AROUND = 11


@dataclass(frozen=True, kw_only=True)
class Run:
    """Observations of one start of the model."""

    identity: JudgeIdentity
    rewards: Sequence[float | PromptError]
    again: Sequence[float | PromptError]
    longest: Sequence[float | PromptError]
    prompt_tokens: int


async def run(folder: Path) -> Run:
    model = VllmRewardModel(Settings(model=str(folder), vllm_args={"kv_cache_memory_bytes": 2**24}))
    try:
        identity = await model.start()
        rewards = await model.rewards(conversations())
        again = await model.rewards(conversations()[::-1])
        times = CallTimes()
        room = CONTEXT_TOKENS - TOKENS_AROUND
        sized = [conversation("x", "\t" * (room + more)) for more in (0, 1)]
        longest = await model.rewards(sized, times)
        return Run(
            identity=identity,
            rewards=rewards,
            again=again[::-1],
            longest=longest,
            prompt_tokens=times.prompt_tokens,
        )
    finally:
        await model.stop()
        gc.collect()


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float32", 1e-5), pytest.param("bfloat16", 0.2, marks=pytest.mark.long)],
)
def test_vllm_rewards_as_transformers_does(
    dtype: Literal["float32", "bfloat16"], tolerance: float, tmp_path: Path
) -> None:
    folder = write_reward_model(tmp_path / "tiny", dtype=dtype)
    shown = asyncio.run(run(folder))
    found = np.array(shown.rewards, dtype=float)
    expected = np.array(rewards_by_transformers(folder, conversations()))
    print(f"{dtype}: rewards differ by at most {np.abs(found - expected).max():.1e}")
    assert np.abs(found - expected).max() <= tolerance
    # The model tells the responses apart, and a sigmoid would not: it has larger rewards.
    assert np.ptp(expected) > 1.0
    assert len(set(found.tolist())) == len(set(conversations()))
    assert np.abs(found - np.array(shown.again, dtype=float)).max() <= tolerance
    identity = shown.identity
    inputs, chat_frame = identity.inputs, str(identity.inputs["chat_frame"])
    assert (inputs["dtype"], inputs["head_dtype"]) == (dtype, "float32")
    assert inputs["architecture"] == "Qwen3ForSequenceClassification"
    assert identity.max_prompt_tokens == CONTEXT_TOKENS
    assert chat_frame.count("{user}") == chat_frame.count("{assistant}") == 1
    fits, too_long = shown.longest
    assert isinstance(fits, float)
    assert isinstance(too_long, PromptTooLongError)
    assert shown.prompt_tokens == CONTEXT_TOKENS
