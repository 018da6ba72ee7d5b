"""Votes of the demo judge beside its label logits, on fresh pairs (docs/guides/kinds.md).

The demo judge was trained on the first token of its answer alone, and most of its answers run on.
So answers are cut after one token here. With whole answers, 32% of the pairs had enough verdicts.

python -m tests.demo_judge.measure_votes        # 3 minutes on two cores
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.judges.votes import VoteScorer
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Generated, Prompt, PromptError, Sampling
from app.settings import Settings
from tests.demo_judge.measure_thoughts import CountingEngine, labeled_pairs, measure

CALIBRATED, FRESH = 500, 1000


class OneToken(CountingEngine):
    """Ends each answer after its first token."""

    async def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Generated | PromptError]:
        return await super().generate(prompts, replace(sampling, max_tokens=1), times)


async def main() -> None:
    """Prints a line for label logits, and one for votes of each kind."""
    engine = OneToken(Settings())
    telemetry, template = Telemetry.on_own_registry(), PromptTemplate()
    labels = await LabelLogitScorer(engine=engine, template=template, telemetry=telemetry).start()
    pairs = labeled_pairs("demo", CALIBRATED + FRESH)
    await measure("label logits", labels, engine, pairs, CALIBRATED)
    for samples, temperature in ((8, 1.0), (16, 1.0), (16, 1.5)):
        votes = VoteScorer(
            engine=engine,
            template=template,
            samples=samples,
            temperature=temperature,
            telemetry=telemetry,
        )
        votes.identity = labels.identity
        await measure(f"{samples} votes at {temperature}", votes, engine, pairs, CALIBRATED)
    await engine.stop()


if __name__ == "__main__":
    asyncio.run(main())
