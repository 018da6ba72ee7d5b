"""Engines without a service: offline `vllm.LLM` and the paper's loop, each in a process.

Runs as a worker, `python -m tests.benchmarks.offline OPTIONS`. Prompts are tokenized before the
clock starts; the service tokenizes while it runs.
"""

import gc
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from app.core.errors import RequestError
from app.judges.engines import vllm_local, vllm_start
from app.judges.engines.model_files import checkpoint_dtype
from app.judges.engines.rendering import PromptRenderer, load_tokenizer
from app.judges.prompts import PromptTemplate
from app.ports import Prompt
from app.settings import Settings
from tests.benchmarks.texts import Pair
from tests.benchmarks.worker import answer_questions
from tests.transformers_reference import Reference


def prompts_of(pairs: list[list[str]]) -> list[Prompt]:
    """Both orders of each pair, as the service makes them."""
    template = PromptTemplate()
    both = (template.both_orders(Pair(*pair).comparison) for pair in pairs)
    return [prompt for orders in both for prompt in orders]


def p_first(a: float, b: float) -> float:
    """Probability that the response shown first is preferred."""
    return 1 / (1 + math.exp(b - a))


class RawVllm:
    """`LLM.generate` with the service's own engine arguments."""

    def __init__(self, options: dict[str, Any]) -> None:
        vllm_start.set_environment()
        from vllm import LLM

        folder = options["model"]
        given = Settings(model=folder)
        arguments = vllm_start.engine_arguments(given, Path(folder))
        # Only the asynchronous engine has this argument.
        arguments.pop("enable_log_requests", None)
        self._llm = LLM(**arguments)
        tokenizer = load_tokenizer(folder)
        self._renderer = PromptRenderer(tokenizer, max_prompt_tokens=2**31)
        self._labels = self._renderer.label_tokens(
            PromptTemplate().render(Pair("x", "x", "x").comparison)
        )
        self._params = vllm_local._label_params(self._labels)
        self.started: dict[str, Any] = {}

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answers {"pairs": ...}."""
        from vllm.inputs import tokens_input

        found = self._renderer.token_ids(prompts_of(question["pairs"]))
        rendered = [ids for ids in found if not isinstance(ids, RequestError)]
        if len(rendered) != len(found):
            raise ValueError("a prompt cannot be rendered")
        inputs = [tokens_input(ids) for ids in rendered]
        began = time.perf_counter()
        outputs = self._llm.generate(inputs, self._params, use_tqdm=False)
        seconds = time.perf_counter() - began
        a, b = self._labels.a, self._labels.b
        both = [output.outputs[0].logprobs[0] for output in outputs]
        p = [p_first(each[a].logprob, each[b].logprob) for each in both]
        return {"seconds": seconds, "p_fwd": p[::2]}


class PaperLoop:
    """transformers with batch size 1: two forward passes a pair, in the checkpoint's dtype."""

    def __init__(self, options: dict[str, Any]) -> None:
        import torch

        folder = options["model"]
        dtype = checkpoint_dtype(Path(folder))
        first = PromptTemplate().render(Pair("x", "x", "x").comparison)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._judge = Reference(folder, first, dtype=dtype, device=device)
        self.started = {"dtype": dtype}

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answers {"pairs": ...}."""
        prompts = prompts_of(question["pairs"])
        began = time.perf_counter()
        found = self._judge(prompts)
        seconds = time.perf_counter() - began
        p = [p_first(each.a, each.b) for each in found]
        return {"seconds": seconds, "p_fwd": p[::2]}


def main() -> None:
    options = json.loads(sys.argv[1])
    worker = RawVllm(options) if options["engine"] == "vllm" else PaperLoop(options)
    gc.freeze()
    answer_questions(worker, started=worker.started)


if __name__ == "__main__":
    main()
