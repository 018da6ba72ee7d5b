"""Throughput of the service, beside vLLM offline and the usual client, one after the other."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from app.judges.engines.rendering import PromptRenderer, load_tokenizer
from tests.benchmarks.chat_client import chat_server, judge_pairs
from tests.benchmarks.offline import prompts_of
from tests.benchmarks.processes import Worker
from tests.benchmarks.texts import Pair
from tests.drills.gpu.made import SHAPES, made_config
from tests.drills.gpu.scene import Finding, Scene
from tests.drills.gpu.starts import DUMMY
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, VLLM_START_S

# Tokens of one prompt; a pair has two. The made judges' tokenizer needs 830 for the frame alone.
TOKENS = 1200
BUDGETS = (2048, 4096, 8192, 16384)
AIM = 0.95
_BATCH, _AT_ONCE = 64, 4
# A measurement takes about so many seconds, whatever the judge's size.
_SECONDS = 30.0
_FEWEST, _MOST = 2 * _BATCH, 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """Measured throughput of one contestant with one shape.

    Args:
        shape: Name of the shape.
        contestant: "service", "offline" or "chat".
        max_num_batched_tokens: vLLM's setting.
        pairs: Number of pairs.
        seconds: Time that they took.
    """

    shape: str
    contestant: str
    max_num_batched_tokens: int
    pairs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Pairs a second."""
        return self.pairs / self.seconds


def throughput(scene: Scene) -> Finding:
    """Step 11: pairs a second of each shape and setting, and of the others in the same run."""
    folder = scene.own_folder()
    shapes = ["tiny"] if scene.small else ["1.5B", "7B", "14B", "32B"]
    budgets = BUDGETS[:1] if scene.small else BUDGETS
    rates: list[Rate] = []
    left_out, read_tokens = {}, 0
    for shape in shapes:
        needed = 2 * SHAPES[shape].parameters
        if scene.device == "gpu" and needed > 0.85 * scene.memory_bytes:
            left_out[shape] = f"its weights take {needed / 1e9:.0f} GB"
            continue
        pairs = _Pairs(made_config(folder / shape, shape))
        read_tokens = pairs.read_tokens
        rates += _rates(scene, folder / shape, shape, budgets, pairs)
    ratios = {shape: _over_offline(rates, shape) for shape in {rate.shape for rate in rates}}
    said = [
        f"{shape} {_best(rates, shape, 'service').per_second:.3g} pairs/s, {ratio:.0%} of offline"
        for shape, ratio in ratios.items()
    ]
    said += [f"{shape} left out: {why}" for shape, why in left_out.items()]
    sentence = f"2 x {TOKENS} tokens: {'; '.join(said)} (aim {AIM:.0%})"
    if scene.small:
        # A rehearsal with a tiny judge measures the overhead of HTTP and not the judge.
        sentence = (
            f"2 x {TOKENS} tokens: the service, vLLM offline and chat completions each answered "
            f"{rates[0].pairs} pairs with a tiny judge; such rates say nothing of a real one"
        )
    return Finding(
        sentence=sentence,
        held=scene.small or (bool(ratios) and min(ratios.values()) >= AIM),
        figures={
            "tokens": TOKENS,
            "read_tokens_a_pair": read_tokens,
            "rates": [asdict(rate) | {"per_second": rate.per_second} for rate in rates],
            "left_out": left_out,
        },
    )


def _best(rates: Sequence[Rate], shape: str, contestant: str) -> Rate:
    return max(
        (rate for rate in rates if (rate.shape, rate.contestant) == (shape, contestant)),
        key=lambda rate: rate.per_second,
    )


def _over_offline(rates: Sequence[Rate], shape: str) -> float:
    best = _best(rates, shape, "service")
    return best.per_second / _best(rates, shape, "offline").per_second


def _rates(
    scene: Scene, model: Path, shape: str, budgets: Sequence[int], pairs: "_Pairs"
) -> Iterator[Rate]:
    # The rate of the first setting decides how many pairs the others measure.
    count = _BATCH if scene.small else 0
    best: Rate | None = None
    for budget in budgets:
        scene.on_stage(f"{shape}: service, {budget} batched tokens")
        arguments = DUMMY | {"max_num_batched_tokens": budget}
        settings = {
            "SCOPE_MODEL": str(model),
            "SCOPE_STORE_URL": "memory://",
            "SCOPE_VLLM_ARGS": json.dumps(arguments),
        }
        folder = scene.own_folder()
        with Server(folder, settings, start_timeout_s=VLLM_START_S) as server:
            warm = _served(server, pairs.take(_BATCH))
            count = count or min(_MOST, max(_FEWEST, int(_SECONDS * _BATCH / warm)))
            seconds = _served(server, pairs.take(count))
        rate = Rate(
            shape=shape,
            contestant="service",
            max_num_batched_tokens=budget,
            pairs=count,
            seconds=seconds,
        )
        best = max(filter(None, (best, rate)), key=lambda each: each.per_second)
        yield rate
    assert best is not None
    contestants: dict[str, Callable[[Path, Path, Mapping[str, Any], _Pairs, int], float]] = {
        "offline": _offline,
        "chat": _chat,
    }
    for name, measured in contestants.items():
        scene.on_stage(f"{shape}: {name}")
        arguments = DUMMY | {"max_num_batched_tokens": best.max_num_batched_tokens}
        yield Rate(
            shape=shape,
            contestant=name,
            max_num_batched_tokens=best.max_num_batched_tokens,
            pairs=count,
            seconds=measured(scene.own_folder(), model, arguments, pairs, count),
        )


def _served(server: Server, pairs: Sequence[Pair]) -> float:
    """Seconds in which the service judges the pairs."""
    batches = [pairs[i : i + _BATCH] for i in range(0, len(pairs), _BATCH)]

    def judge(batch: Sequence[Pair]) -> None:
        body = {"comparisons": [pair._asdict() for pair in batch], "alpha": None}
        answer = httpx.post(
            f"http://127.0.0.1:{server.port}/judge/batch", json=body, timeout=PATIENCE_S
        )
        answer.raise_for_status()
        errors = [each for each in answer.json()["results"] if "error" in each]
        if errors:
            raise RuntimeError(f"a pair was not judged: {errors[0]['error']}")

    with ThreadPoolExecutor(_AT_ONCE) as clients:
        begun = time.monotonic()
        for answered in [clients.submit(judge, batch) for batch in batches]:
            answered.result()
        return time.monotonic() - begun


def _offline(
    folder: Path, model: Path, arguments: Mapping[str, Any], pairs: "_Pairs", count: int
) -> float:
    """Seconds of `LLM.generate` for as many pairs, already tokenised."""
    options = {"engine": "vllm", "model": str(model), "arguments": arguments}
    with Worker(folder, "offline", "offline", options) as worker:
        worker.ask(pairs=pairs.take(_BATCH))
        return float(worker.ask(pairs=pairs.take(count))["seconds"])


def _chat(
    folder: Path, model: Path, arguments: Mapping[str, Any], pairs: "_Pairs", count: int
) -> float:
    """Seconds of two chat completions a pair, from vLLM's own server."""
    with chat_server(folder, str(model), arguments) as server:
        asyncio.run(judge_pairs(server, pairs.take(_BATCH)))
        begun = time.monotonic()
        asyncio.run(judge_pairs(server, pairs.take(count)))
        return time.monotonic() - begun


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of tokens with which both prompts begin."""
    same = (a == b for a, b in zip(one, other, strict=False))
    return sum(itertools.takewhile(bool, same))


class _Pairs:
    """Pairs whose prompts have `TOKENS` tokens; no two have a common beginning beyond the system's.

    Args:
        model: Folder of the tokenizer.
    """

    def __init__(self, model: Path) -> None:
        self._rng = random.Random(11)
        self._words = 40
        self._renderer = PromptRenderer(load_tokenizer(str(model)), max_prompt_tokens=2**31)
        (frame, _) = self._orders(Pair("x", "x", "x"))
        for _ in range(4):
            lengths = [len(ids) for pair in self.take(8) for ids in self._orders(pair)]
            mean = sum(lengths) / len(lengths)
            # The words of a pair share the tokens that the frame of the prompt leaves.
            share = (TOKENS - len(frame)) / max(1.0, mean - len(frame))
            self._words = max(1, round(self._words * share))
        forward, reverse = self._orders(self.take(1)[0])
        (other, _) = self._orders(self.take(1)[0])
        # The prefix cache has the beginning that all pairs share, and the reverse order finds in it
        # all that both orders share.
        of_all, of_both = _shared(forward, other), _shared(forward, reverse)
        assert of_all <= of_both < TOKENS, (of_all, of_both)
        self.read_tokens = len(forward) - of_all + len(reverse) - of_both

    def take(self, count: int) -> list[Pair]:
        """The next pairs."""
        return [Pair(self._text(), self._text(), self._text()) for _ in range(count)]

    def _orders(self, pair: Pair) -> list[list[int]]:
        """The token ids of both orders."""
        found = self._renderer.token_ids(prompts_of([list(pair)]))
        return [ids for ids in found if isinstance(ids, list)]

    def _text(self) -> str:
        letters = "abcdefghijklmnopqrstuvwxyz"
        return " ".join("".join(self._rng.choices(letters, k=4)) for _ in range(self._words))
