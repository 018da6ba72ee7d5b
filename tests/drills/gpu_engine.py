"""The engine of `make gpu` in a process of its own, and the judges with random weights.

Runs as a worker, `python -m tests.drills.gpu_engine OPTIONS`.
"""

import asyncio
import json
import random
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from app.core.comparison import Comparison
from app.core.errors import StartupError
from app.judges.engines.vllm_local import VllmEngine
from app.judges.prompts import PromptTemplate
from app.ports import Generated, LabelLogits, Prompt, Sampling
from app.settings import DEMO_FOLDER, Settings
from tests.benchmarks.worker import answer_questions

DEMO = DEMO_FOLDER / "model"
# Tokens of each order of a pair of MT-Bench.
TOKENS = 785
TEMPLATE = PromptTemplate()


class Shape(NamedTuple):
    """Sizes of a model of the Qwen2 architecture, by the names of its config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int = 152064
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 8192

    @property
    def body(self) -> int:
        """Number of weights that every token meets: no embeddings and head, biases and norms."""
        head = self.hidden_size // self.num_attention_heads
        attention = 2 * self.hidden_size * (self.hidden_size + head * self.num_key_value_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size
        return self.num_hidden_layers * layer


# The config.json of Qwen2.5-Instruct in each size, and a judge for a rehearsal: on a CPU a prompt
# is read in one step, so the context is at most the step's tokens.
SHAPES = {
    "0.5B": Shape(896, 4864, 24, 14, 2, vocab_size=151936, tie_word_embeddings=True),
    "7B": Shape(3584, 18944, 28, 28, 4),
    "14B": Shape(5120, 13824, 48, 40, 8),
    "32B": Shape(5120, 27648, 64, 40, 8),
    "tiny": Shape(64, 128, 2, 2, 1, vocab_size=384, max_position_embeddings=2048),
}


def made_config(folder: Path, shape: str) -> Path:
    """A folder with config and tokenizer and without weights, for vLLM's `load_format=dummy`."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DEMO / name, folder)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **SHAPES[shape]._asdict(),
        "bos_token_id": None,
        # Tokens of the demo judge's tokenizer.
        "eos_token_id": 379,
        "pad_token_id": 377,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        # More than the size of a normal start: prompts then differ in their scores.
        "initializer_range": 0.06,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder


def made_checkpoint(folder: Path, shape: str) -> Path:
    """A folder with a whole model: two programs that load it have the same weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    made_config(folder, shape)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def both_orders(pairs: Sequence[Sequence[str]]) -> list[Prompt]:
    return [prompt for each in pairs for prompt in TEMPLATE.both_orders(Comparison.of(*each))]


class EngineWorker:
    """The service's own engine without the service, in a process of its own.

    Args:
        options: Fields of `Settings`.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._engine = VllmEngine(Settings(**options))
        self.started = self._loop.run_until_complete(self._start())

    async def _start(self) -> dict[str, Any]:
        """Facts of the started judge, or the sentence that refuses it."""
        began = time.perf_counter()
        try:
            identity = await self._engine.start(both_orders([("x", "x", "x")])[0])
        except StartupError as exc:
            return {"refused": exc.detail}
        config = self._engine._process.running().vllm_config
        return {
            "seconds": time.perf_counter() - began,
            "dtype": identity.dtype,
            "head_dtype": identity.head_dtype,
            "runtime": identity.runtime,
            "context_tokens": config.model_config.max_model_len,
            "cache_tokens": (config.cache_config.num_gpu_blocks or 0)
            * config.cache_config.block_size,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        }

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answers {"what": "gaps" | "labels" | "tokens", ...}."""
        what = question.pop("what")
        if what == "tokens":
            return self._loop.run_until_complete(self._tokens(**question))
        ask = self._gaps if what == "gaps" else self._labels_beside_texts
        return self._loop.run_until_complete(ask(**question))

    async def _read(self, ids: list[int], name: str) -> Any:
        """vLLM's output for a label request of these tokens."""
        from vllm.inputs import tokens_input

        last = None
        async for output in self._engine._process.running().generate(
            tokens_input(ids), self._engine._label_params, name
        ):
            last = output
        assert last is not None
        return last

    async def _tokens(
        self, seed: int, vocabulary: int, prompts: int, shared: int = 0, at_once: int = 512
    ) -> dict[str, Any]:
        """Reads random prompts, `at_once` at a time, whose first `shared` tokens are the same."""
        rng, places = random.Random(seed), asyncio.Semaphore(at_once)

        def drawn(count: int) -> list[int]:
            return [rng.randrange(10, vocabulary) for _ in range(count)]

        first = drawn(shared)
        asked = [first + drawn(TOKENS - shared) for _ in range(prompts)]
        seconds: list[float] = []

        async def read(number: int) -> int:
            async with places:
                began = time.perf_counter()
                output = await self._read(asked[number], f"{seed}-{number}")
                seconds.append(time.perf_counter() - began)
                return len(asked[number]) - (output.num_cached_tokens or 0)

        if first:
            await read(0)
        began = time.perf_counter()
        seconds.clear()
        tokens = sum(await asyncio.gather(*map(read, range(prompts))))
        taken, each = time.perf_counter() - began, sorted(seconds)
        return {
            "seconds": taken,
            "tokens_read": tokens,
            "tokens_per_s": tokens / taken,
            "pairs_per_s": prompts / 2 / taken,
            "p50_s": each[len(each) // 2],
            "p99_s": each[int(len(each) * 0.99)],
        }

    async def _gaps(
        self, pairs: list[list[str]], together: int, forget: bool = False
    ) -> dict[str, Any]:
        """Logit gaps of both orders, `together` pairs at a time; `forget` empties the cache."""
        if forget:
            await self._engine._process.running().reset_prefix_cache()
        gaps: list[float] = []
        began = time.perf_counter()
        for first in range(0, len(pairs), together):
            prompts = both_orders(pairs[first : first + together])
            for logits in await self._engine.label_logits(prompts):
                assert isinstance(logits, LabelLogits), logits
                gaps.append(logits.a - logits.b)
        # In the reverse order response_a is shown second.
        reverse = [-gap for gap in gaps[1::2]]
        return {"seconds": time.perf_counter() - began, "gaps": [gaps[::2], reverse]}

    async def _labels_beside_texts(self, pairs: list[list[str]]) -> dict[str, Any]:
        """Token ids that come back for label requests while texts are generated."""
        engine, prompts = self._engine, both_orders(pairs)
        wanted = {engine._labels.a, engine._labels.b}

        async def is_right(number: int, ids: Any) -> bool:
            (output,) = (await self._read(ids, f"label-{number}")).outputs
            # vLLM adds the token that it has sampled.
            return set(output.logprobs[0]) - (set(output.token_ids) - wanted) == wanted

        sampling = Sampling(max_tokens=16, temperature=0.0, seeds=range(16))
        texts = asyncio.create_task(engine.generate(prompts[:16], sampling))
        rendered = engine._renderer.token_ids(prompts)
        right = await asyncio.gather(*(is_right(i, ids) for i, ids in enumerate(rendered)))
        written = sum(isinstance(text, Generated) for text in await texts)
        return {"right": sum(right), "prompts": len(prompts), "texts": written}


if __name__ == "__main__":
    engine = EngineWorker(json.loads(sys.argv[1]))
    answer_questions(engine, started=engine.started)
