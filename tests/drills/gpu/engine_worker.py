"""A judge's engine in a process of its own, which answers the questions of the steps.

Runs as a worker, `python -m tests.drills.gpu.engine_worker OPTIONS`.
"""

import asyncio
import json
import random
import sys
import time
from typing import Any

from app.core.comparison import Comparison
from app.core.errors import StartupError
from app.judges.engines.vllm_local import VllmEngine
from app.judges.engines.vllm_start import VllmOptions
from app.judges.prompts import PromptTemplate
from app.ports import Generated, LabelLogits, Prompt, Sampling
from tests.benchmarks.processes import answer_questions
from tests.benchmarks.texts import Pair

_TEMPLATE = PromptTemplate()


def _both_orders(pairs: list[list[str]]) -> list[Prompt]:
    orders = (_TEMPLATE.both_orders(Pair(*pair).comparison) for pair in pairs)
    return [prompt for both in orders for prompt in both]


class EngineWorker:
    """The service's own engine without the service.

    Args:
        options: Fields of `VllmOptions`.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._engine = VllmEngine(VllmOptions(judge="judge", **options))
        self.started = self._loop.run_until_complete(self._start())

    async def _start(self) -> dict[str, Any]:
        """Facts of the started judge, or the sentence that refuses it."""
        began = time.perf_counter()
        try:
            identity = await self._engine.start(_TEMPLATE.render(Comparison.of("x", "x", "x")))
        except StartupError as exc:
            return {"refused": exc.detail}
        config = self._engine._process.running().vllm_config
        cache = config.cache_config
        return {
            "seconds": time.perf_counter() - began,
            "dtype": identity.dtype,
            "head_dtype": identity.head_dtype,
            "runtime": identity.runtime,
            "context_tokens": config.model_config.max_model_len,
            "cache_tokens": (cache.num_gpu_blocks or 0) * cache.block_size,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        }

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answers {"what": "gaps" | "labels beside texts" | "tokens", ...}."""
        ask = {"gaps": self._gaps, "tokens": self._tokens}
        run = ask.get(question["what"], self._labels_beside_texts)
        return self._loop.run_until_complete(run(question))

    async def _tokens(self, question: dict[str, Any]) -> dict[str, Any]:
        """Reads random prompts, `at_once` at a time, whose first `shared` tokens are the same."""
        from vllm.inputs import tokens_input

        rng, places = random.Random(question["seed"]), asyncio.Semaphore(question["at_once"])

        def drawn(count: int) -> list[int]:
            return [rng.randrange(10, question["vocabulary"]) for _ in range(count)]

        first = drawn(question["shared"])
        prompts = [
            first + drawn(question["tokens"] - len(first)) for _ in range(question["prompts"])
        ]
        seconds: list[float] = []

        async def read(number: int) -> int:
            async with places:
                began, last = time.perf_counter(), None
                async for output in self._engine._process.running().generate(
                    tokens_input(prompts[number]),
                    self._engine._label_params,
                    f"{question['seed']}-{number}",
                ):
                    last = output
                assert last is not None
                seconds.append(time.perf_counter() - began)
                return len(prompts[number]) - (last.num_cached_tokens or 0)

        if first:
            await read(0)
        began = time.perf_counter()
        seconds.clear()
        counts = await asyncio.gather(*map(read, range(len(prompts))))
        taken = time.perf_counter() - began
        return {"seconds": taken, "tokens_read": sum(counts), "each": sorted(seconds)}

    async def _gaps(self, question: dict[str, Any]) -> dict[str, Any]:
        """Logit gaps of both orders, `together` pairs at a time; `forget` empties the cache."""
        pairs, together = question["pairs"], question["together"]
        if question.get("forget"):
            await self._engine._process.running().reset_prefix_cache()
        gaps: list[float] = []
        began = time.perf_counter()
        for first in range(0, len(pairs), together):
            prompts = _both_orders(pairs[first : first + together])
            for logits in await self._engine.label_logits(prompts):
                if not isinstance(logits, LabelLogits):
                    return {"failed": logits.detail}
                gaps.append(logits.a - logits.b)
        return {
            "seconds": time.perf_counter() - began,
            "forward": gaps[::2],
            # The gap of response_a, which is shown second here.
            "reverse": [-gap for gap in gaps[1::2]],
        }

    async def _labels_beside_texts(self, question: dict[str, Any]) -> dict[str, Any]:
        """Token ids that come back for label requests while texts are generated."""
        from vllm.inputs import tokens_input

        engine, prompts = self._engine, _both_orders(question["pairs"])
        rendered = engine._renderer.token_ids(prompts)

        async def returned(number: int, ids: list[int]) -> list[int]:
            run = engine._process.running().generate(
                tokens_input(ids), engine._label_params, f"label-{number}"
            )
            last = None
            async for output in run:
                last = output
            assert last is not None
            sampled = set(last.outputs[0].token_ids)
            found = set(last.outputs[0].logprobs[0])
            # vLLM adds the token that it has sampled.
            return sorted(found - (sampled - set(wanted)))

        wanted = [engine._labels.a, engine._labels.b]
        texts = asyncio.create_task(
            engine.generate(
                prompts[:16],
                Sampling(max_tokens=16, temperature=0.0, seeds=range(len(prompts[:16]))),
            )
        )
        labels = [returned(i, ids) for i, ids in enumerate(rendered) if isinstance(ids, list)]
        found = await asyncio.gather(*labels)
        answered = [text for text in await texts if isinstance(text, Generated)]
        return {
            "wanted": sorted(wanted),
            "returned": found,
            "prompts": len(prompts),
            "texts": len(answered),
        }


def main() -> None:
    worker = EngineWorker(json.loads(sys.argv[1]))
    answer_questions(worker, started=worker.started)


if __name__ == "__main__":
    main()
