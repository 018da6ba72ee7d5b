"""Fetches rewards with OpenRLHF's own agent from POST /rewards/openrlhf; prints them as JSON.

It needs openrlhf without its dependencies, and aiohttp. The file of the agent is OpenRLHF's; its
packages are bare, because their `__init__` imports DeepSpeed.
"""

import asyncio
import functools
import importlib.util
import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


@functools.cache
def agent_module() -> Any:
    """The module openrlhf.utils.agent."""
    spec = importlib.util.find_spec("openrlhf")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0])
    for name, path in (("openrlhf", root), ("openrlhf.utils", root / "utils")):
        package = ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    return importlib.import_module("openrlhf.utils.agent")


class Texts:
    """A tokenizer with one token for each character."""

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        """The tokens of a text, in the form of a tensor."""
        row = SimpleNamespace(tolist=lambda: [ord(character) for character in text])
        return {"input_ids": [row]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """The text of tokens."""
        assert not skip_special_tokens
        return "".join(map(chr, ids))


class Policy:
    """An engine that gives planned responses."""

    def __init__(self, response: str) -> None:
        self._response = response

    async def generate(self, *args: Any, **options: Any) -> Any:
        """The planned response."""
        ids = [ord(character) for character in self._response]
        output = SimpleNamespace(token_ids=ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


async def executed(scene: dict[str, Any]) -> list[dict[str, Any]]:
    """Reward, score and logs of each pair of response and reference."""
    executor = agent_module().SingleTurnAgentExecutor(scene["url"])
    prompt = f"<|im_start|>user\n{scene['question']}<|im_end|>\n<|im_start|>assistant\n"
    sampling = SimpleNamespace(max_tokens=100, logprobs=None)
    outputs = [
        await executor.execute(
            prompt, reference, sampling, 10_000, Texts(), Policy(f"{response}<|im_end|>")
        )
        for response, reference in scene["pairs"]
    ]
    # OpenRLHF's rewards are lists of one number.
    return [{name: each[name] for name in ("reward", "scores", "extra_logs")} for each in outputs]


def main() -> None:
    """Fetches rewards for each line of stdin, which has a scene as JSON."""
    rows = [asyncio.run(executed(json.loads(line))) for line in sys.stdin]
    print(json.dumps({"versions": {"openrlhf": version("openrlhf")}, "scenes": rows}))


if __name__ == "__main__":
    main()
