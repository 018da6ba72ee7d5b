"""A reward model behind a real vLLM server gives the rewards of transformers, by both routes."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from app.judges.engines.openai_reward import OpenAiRewardModel
from app.judges.engines.openai_servers import Endpoints
from app.settings import Settings
from tests.integration.engines.reward_checkpoint import (
    CONTEXT_TOKENS,
    conversations,
    rewards_by_transformers,
    write_reward_model,
)
from tests.integration.engines.vllm_server import KEY, MODEL, vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.long]


async def rewards_at(url: str, folder: Path) -> tuple[list[float], int]:
    """The rewards of the conversations, and the longest conversation."""
    model = OpenAiRewardModel(
        Endpoints(urls=(url,), api_key=KEY),
        Settings(engine="openai", model=MODEL, tokenizer=str(folder)),
    )
    try:
        identity = await model.start()
        found = await model.rewards(conversations())
        return [each for each in found if isinstance(each, float)], identity.max_prompt_tokens
    finally:
        await model.stop()


def test_rewards_of_a_real_server_are_those_of_transformers(
    tmp_path: Path,
) -> None:
    folder = write_reward_model(tmp_path / "tiny", dtype="float32")
    expected = np.array(rewards_by_transformers(folder, conversations()))
    pooling = ("--model", str(folder), "--runner", "pooling", "--convert", "classify")
    with vllm_server(tmp_path, more=pooling) as url:
        found, longest = asyncio.run(rewards_at(url, folder))
    assert longest == CONTEXT_TOKENS
    assert np.abs(np.array(found) - expected).max() <= 1e-5
    # A sigmoid would have ended the start: it makes such rewards equal, or puts them below 1.
    assert np.abs(expected).max() > 1.0
