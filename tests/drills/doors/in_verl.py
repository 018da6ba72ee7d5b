"""Scores planned responses with verl's own reward manager and the adapter; prints JSON.

It needs verl, and neither the service's package nor pytest.
"""

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any

import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import get_custom_reward_fn


class Texts:
    """A tokenizer whose only token stands for a planned response."""

    def __init__(self, responses: list[str]) -> None:
        self._responses = responses

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        """The planned response of an id."""
        assert skip_special_tokens
        return self._responses[int(ids[0])]


async def scored(scene: dict[str, Any]) -> list[Any]:
    """The result, or the exception, of each pair of response and reference."""
    config = OmegaConf.create(
        {
            "reward": {
                "custom_reward_function": {
                    "path": "pkg://scope_judge.verl",
                    "name": "compute_score",
                    "reward_kwargs": scene["options"],
                }
            }
        }
    )
    responses = [response for response, _ in scene["pairs"]]
    manager = NaiveRewardManager(config, Texts(responses), get_custom_reward_fn(config))
    data = [_sample(i, scene["question"], pair[1]) for i, pair in enumerate(scene["pairs"])]
    found = await asyncio.gather(*map(manager.run_single, data), return_exceptions=True)
    return [
        f"{type(each).__name__}: {each}" if isinstance(each, Exception) else each for each in found
    ]


def _sample(number: int, question: str, reference: str) -> Any:
    return DataProto.from_dict(
        tensors={
            "responses": torch.tensor([[number]]),
            "attention_mask": torch.tensor([[1, 1]]),
        },
        non_tensors={
            "data_source": _array("pairs"),
            "reward_model": _array({"ground_truth": reference}),
            "extra_info": _array({"question": question}),
        },
    )


def _array(value: Any) -> Any:
    import numpy as np

    array = np.empty(1, dtype=object)
    array[0] = value
    return array


def main() -> None:
    """Scores the pairs of each line of stdin, which has a scene as JSON."""
    rows = [asyncio.run(scored(json.loads(line))) for line in sys.stdin]
    versions = {name: version(name) for name in ("verl", "torch")}
    print(json.dumps({"versions": versions, "scenes": rows}))


if __name__ == "__main__":
    main()
