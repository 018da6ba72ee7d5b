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
from typing import Any, NamedTuple

import numpy as np

from app.core.comparison import Comparison
from app.core.diagnostics import auroc
from app.core.pac import pac_threshold
from app.core.preference import Score, preference_from_gaps
from app.demo.pairs import demo_sets
from app.judges.engines.vllm_local import VllmEngine
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import load_template
from app.judges.scorer import ScoreOutcome, Scorer
from app.judges.thoughts import ThoughtScorer
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Prompt, PromptError, Sampling, Thought
from app.settings import Settings
from tests.demo_judge.train_thinking import sums

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
    """Counts the tokens of thoughts that it writes."""

    written = 0

    async def think(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Thought | PromptError]:
        times = times or CallTimes()
        thoughts = await super().think(prompts, sampling, times)
        self.written += times.written_tokens
        return thoughts


@asynccontextmanager
async def engine_of(options: argparse.Namespace, *, thinks: bool) -> AsyncIterator[CountingEngine]:
    """A vLLM engine of the model, not yet started."""
    engine = CountingEngine(
        Settings(
            model=options.model,
            max_model_len=options.max_model_len,
            scoring="thoughts" if thinks else "labels",
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
    engine.written = 0
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
        labels = await LabelLogitScorer(
            engine=engine, template=template, telemetry=telemetry
        ).start()
        figures = [await measure("labels", labels, engine, pairs, options.calibrated)]
    for samples in (1, 4):
        async with engine_of(options, thinks=True) as engine:
            given = {"max_tokens": options.think_tokens, "temperature": options.temperature}
            scorer = await ThoughtScorer(
                engine=engine, template=template, samples=samples, telemetry=telemetry, **given
            ).start()
            name = f"{samples} thoughts"
            figures.append(await measure(name, scorer, engine, pairs, options.calibrated))
    if options.json:
        options.json.write_text(json.dumps(figures), encoding="utf-8")


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
    parser.add_argument("--json", type=Path, help="file for the figures")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
