r"""Compares labels with one thought and with several, on the same labeled pairs.

python -m tests.demo_judge.train_thinking --out thinking-judge
python -m tests.demo_judge.measure_thoughts --model thinking-judge --pairs sums \
  --prompt-file thinking-judge/prompt.toml --think-tokens 26
make gpu ARGS="--only thoughts"                      # with Qwen/Qwen3-8B

For each kind: accuracy, AUROC of the confidence, coverage and error of "pac" on fresh pairs,
seconds and written tokens a pair, and coverage a second of the engine.
"""

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from app.core.comparison import Comparison
from app.core.diagnostics import auroc
from app.core.errors import JudgmentFailedError
from app.core.pac import pac_threshold
from app.core.preference import Score, preference_from_gaps
from app.demo.pairs import demo_sets
from app.judges.engines.thinking import UseOfTemplate
from app.judges.engines.vllm_local import VllmEngine
from app.judges.engines.vllm_start import VllmOptions
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate, load_template, rendered_pairs
from app.judges.scorer import ScoreOutcome, Scorer
from app.judges.thoughts import ThoughtScorer
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, LabelLogits, Prompt, PromptError, Sampling, Thought
from tests.demo_judge.train_thinking import sums

if TYPE_CHECKING:
    from vllm import RequestOutput

_BATCH = 100
_ALPHA = _DELTA = 0.1


class Labeled(NamedTuple):
    """A comparison, and whether its first response is the better one."""

    comparison: Comparison
    label_a: bool


def labeled_pairs(kind: str, count: int) -> list[Labeled]:
    """Pairs of the tiny judge's task, or of the demo judge's tasks."""
    stream: Iterator[Any] = sums(11) if kind == "sums" else iter(demo_sets().fresh)
    return [
        Labeled(Comparison.of(p.question, p.response_a, p.response_b), p.label == "A")
        for p in itertools.islice(stream, count)
    ]


class CountingEngine(VllmEngine):
    """Counts the tokens that it writes and reads for thoughts."""

    written = read = cached = 0

    async def think(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Thought | PromptError]:
        times = times or CallTimes()
        thoughts = await super().think(prompts, sampling, times)
        self.written += times.written_tokens
        return thoughts

    def _labels_of(self, output: "RequestOutput") -> LabelLogits | JudgmentFailedError:
        self.read += len(output.prompt_token_ids or ())
        self.cached += output.num_cached_tokens or 0
        return super()._labels_of(output)

    def forget_cache(self) -> None:
        """From now on, labels are read without the prefix cache."""
        self._label_params = self._uncached_params


@asynccontextmanager
async def engine_of(options: argparse.Namespace, *, thinks: bool) -> AsyncIterator[CountingEngine]:
    """A vLLM engine of the model, not yet started."""
    engine = CountingEngine(
        VllmOptions(
            model=options.model,
            judge="measured",
            max_model_len=options.max_model_len,
            use=UseOfTemplate(thinks=thinks),
        )
    )
    try:
        yield engine
    finally:
        await engine.stop()


async def measure(
    name: str, scorer: Scorer, engine: CountingEngine, pairs: Sequence[Labeled], calibrated: int
) -> dict[str, Any]:
    """Scores all pairs, calibrates on the first ones; prints and returns figures of the others."""
    scores: list[ScoreOutcome] = []
    engine.written = engine.read = engine.cached = 0
    begun = time.perf_counter()
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        scores += await scorer.score([pair.comparison for pair in batch])
    seconds = (time.perf_counter() - begun) / len(pairs)
    known = np.array([isinstance(score, Score) for score in scores])
    gaps = np.array([score.gaps for score in scores if isinstance(score, Score)])
    preferences = preference_from_gaps(*gaps.T)
    label_a = np.array([pair.label_a for pair in pairs])[known]
    wrong = np.where(label_a, preferences.p_bar <= 0.5, preferences.p_bar >= 0.5)
    place = np.flatnonzero(known)
    first, rest = place < calibrated, place >= calibrated
    entropy = preferences.entropy
    threshold = pac_threshold(entropy[first], wrong[first], alpha=_ALPHA, delta=_DELTA)
    accepted = rest & (entropy <= threshold) & (preferences.p_bar != 0.5)
    coverage = float(accepted.sum() / (len(pairs) - calibrated))
    figures = {
        "name": name,
        "unfinished": float(1 - known.mean()),
        "accuracy": float(1 - wrong.mean()),
        "auroc": auroc(preferences.confidence, ~wrong),
        "coverage": coverage,
        "wrong": float(wrong[accepted].mean()) if accepted.any() else 0.0,
        "seconds": seconds,
        "tokens": engine.written / len(pairs),
        "coverage_a_second": coverage / seconds,
    }
    print(figures, flush=True)
    return figures


async def run(options: argparse.Namespace) -> None:
    """Measures the three judges."""
    template = load_template(options.prompt_file, prefill=options.prefill)
    pairs = labeled_pairs(options.pairs, options.calibrated + options.fresh)
    telemetry = Telemetry.on_own_registry()
    async with engine_of(options, thinks=False) as engine:
        labels = await LabelLogitScorer.start(engine, template, telemetry=telemetry)
        figures = [await measure("labels", labels, engine, pairs, options.calibrated)]
    for samples in (1, 4):
        async with engine_of(options, thinks=True) as engine:
            scorer = await ThoughtScorer.start(
                engine,
                template,
                samples=samples,
                max_tokens=options.think_tokens,
                temperature=options.temperature,
                telemetry=telemetry,
            )
            name = f"{samples} thoughts"
            figures.append(await measure(name, scorer, engine, pairs, options.calibrated))
            if samples == 1:
                await show(engine, template, pairs[: options.shown], scorer)
    if options.json:
        options.json.write_text(json.dumps(figures), encoding="utf-8")


async def show(
    engine: CountingEngine,
    template: PromptTemplate,
    pairs: Sequence[Labeled],
    scorer: ThoughtScorer,
) -> None:
    """Prints what the prefix cache saves in the second pass, and ten thoughts."""
    prompts = await rendered_pairs(template, [pair.comparison for pair in pairs])
    for name in ("with", "without"):
        if name == "without":
            engine.forget_cache()
        engine.read = engine.cached = 0
        begun = time.perf_counter()
        thoughts = await engine.think(
            prompts,
            Sampling(
                max_tokens=scorer.max_tokens,
                temperature=scorer.temperature,
                seeds=range(len(prompts)),
            ),
        )
        seconds = (time.perf_counter() - begun) / len(pairs)
        print(
            f"{name} the cache in the second pass: {1000 * seconds:.1f} ms a pair, "
            f"{engine.cached} of {engine.read} tokens from the cache",
            flush=True,
        )
    for prompt, thought in zip(prompts[:10], thoughts[:10], strict=True):
        print(repr(prompt.user[-200:]), thought, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", choices=("sums", "demo"), default="demo")
    parser.add_argument("--prompt-file", type=Path)
    parser.add_argument("--prefill", default="")
    parser.add_argument("--think-tokens", type=int, default=2048)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--calibrated", type=int, default=500)
    parser.add_argument("--fresh", type=int, default=500)
    parser.add_argument("--shown", type=int, default=100)
    parser.add_argument("--json", type=Path, help="file for the figures")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
