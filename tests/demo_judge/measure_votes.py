"""Votes of the demo judge beside its label logits, on fresh pairs (docs/guides/kinds.md).

The demo judge was trained on the first token of its answer alone, and most of its answers run on.
So answers are cut after one token here. With whole answers, 32% of the pairs had enough verdicts.

python -m tests.demo_judge.measure_votes        # 3 minutes on two cores
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.core.comparison import Comparison
from app.core.pac import pac_threshold
from app.core.preference import preference_from_gaps
from app.core.score import Score
from app.demo.pairs import Pair, demo_sets
from app.judges.engines.vllm_local import VllmEngine
from app.judges.engines.vllm_start import VllmOptions
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.judges.scorer import ScoreOutcome, Scorer
from app.judges.votes import VoteScorer, is_unanimous
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Generated, Prompt, PromptError, Sampling
from app.wiring.engines import DEMO_FOLDER

CALIBRATION, FRESH = (500, 1000), 1000
BATCH = 250
ALPHA = DELTA = 0.1


class OneToken(VllmEngine):
    """Ends each answer after its first token."""

    async def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Generated | PromptError]:
        return await super().generate(prompts, replace(sampling, max_tokens=1), times)


async def measure() -> None:
    """Prints a line for label logits, and one for votes of each kind."""
    engine = OneToken(VllmOptions(model=str(DEMO_FOLDER / "model"), judge="demo"))
    telemetry, template = Telemetry.on_own_registry(), PromptTemplate()
    labels = await LabelLogitScorer.start(engine, template, telemetry=telemetry)
    pairs = list(itertools.islice(demo_sets().fresh, CALIBRATION[-1] + FRESH))
    await report("label logits", labels, pairs, telemetry)
    for samples, temperature in ((8, 1.0), (16, 1.0), (16, 1.5)):
        votes = VoteScorer(
            engine=engine,
            template=template,
            identity=labels.identity,
            samples=samples,
            temperature=temperature,
            tie_key=b"measured",
            telemetry=telemetry,
        )
        await report(f"{samples} votes at {temperature}", votes, pairs, telemetry)
    await engine.stop()


async def report(name: str, scorer: Scorer, pairs: Sequence[Pair], telemetry: Telemetry) -> None:
    """Judges all pairs, calibrates on the first ones, and prints coverage and error on the rest."""
    begun = time.perf_counter()
    scores: list[ScoreOutcome] = []
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        scores += await scorer.score(
            [Comparison.of(pair.question, pair.response_a, pair.response_b) for pair in batch]
        )
    seconds = (time.perf_counter() - begun) / len(pairs)
    good = np.array([isinstance(score, Score) for score in scores])
    judged = [score for score in scores if isinstance(score, Score)]
    preferences = preference_from_gaps(*np.array([score.gaps for score in judged]).T)
    label_a = np.array([pair.label == "A" for pair in pairs])[good]
    wrong = (preferences.p_bar > 0.5) != label_a
    wrong |= preferences.p_bar == 0.5
    print(
        f"{name}: {good.mean():.1%} of the pairs have a score, accuracy {1 - wrong.mean():.3f}, "
        f"unanimous {np.mean([is_unanimous(score) for score in judged]):.1%}, "
        f"{1000 * seconds:.1f} ms a pair",
        flush=True,
    )
    place = np.flatnonzero(good)
    test = place >= CALIBRATION[-1]
    for n in CALIBRATION:
        used = place < n
        threshold = pac_threshold(preferences.entropy[used], wrong[used], alpha=ALPHA, delta=DELTA)
        accepted = test & (preferences.entropy <= threshold) & (preferences.p_bar != 0.5)
        print(
            f"  n = {n}: coverage {accepted.sum() / FRESH:.3f}, "
            f"error {wrong[accepted].mean() if accepted.any() else float('nan'):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    asyncio.run(measure())
