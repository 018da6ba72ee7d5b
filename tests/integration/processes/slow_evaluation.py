"""Judges 1,000 pairs into a folder, slowly enough to be killed, and records the engine's calls.

python -m tests.integration.processes.slow_evaluation FOLDER
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from app.core.comparison import Comparison
from app.core.fingerprint import JudgeIdentity
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.interview import Dataset, Interviewer, missing_answers
from app.evaluation.judgments.log import JudgmentLog
from app.evaluation.judgments.questions import Questionnaire
from app.judges.engines.scripted import ScriptedEngine
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, LabelLogits, Prompt, PromptError

PAIRS = 1000
LATENCY_S = 0.05
# A run that is to be killed answers no more pairs, so that it cannot end before the kill.
MOST_ANSWERED = 300


class SlowEngine(ScriptedEngine):
    """Writes a line for each call into a file before it answers; hangs after `most` pairs."""

    def __init__(self, seen: Path, *, latency_s: float, most: int) -> None:
        super().__init__(latency_s=latency_s)
        self._seen = seen
        self._left = most

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        with self._seen.open("a") as file:
            file.write(f"{len(prompts) // 2}\n")
        self._left -= len(prompts) // 2
        if self._left < 0:
            await asyncio.Event().wait()
        return await super().label_logits(prompts, times)


async def judge(folder: Path, *, latency_s: float = LATENCY_S, most: int = PAIRS) -> None:
    """Judges the pairs that are missing in the folder's judgments.jsonl."""
    pairs = [
        LabeledPair(
            id=f"{i}",
            group="g",
            comparison=Comparison.of(f"Question {i}?", "this", "that"),
            label="A",
        )
        for i in range(PAIRS)
    ]
    template = PromptTemplate()
    questionnaire = Questionnaire.of(template, (), ["orders"], seed=0)
    scorer = LabelLogitScorer(
        SlowEngine(folder / "seen", latency_s=latency_s, most=most),
        template,
        identity=JudgeIdentity(name="scripted", inputs={}, described={}, max_prompt_tokens=1000),
        telemetry=Telemetry.on_own_registry(),
    )
    interviewer = Interviewer(scorer=scorer)
    with JudgmentLog(folder / "judgments.jsonl", judge="scripted") as log:
        work = missing_answers(
            [Dataset(name="d", pairs=pairs, questionnaire=questionnaire)], ["orders"], log.read()
        )
        await interviewer.ask(work, log, lambda *_: None)


if __name__ == "__main__":
    asyncio.run(judge(Path(sys.argv[1]), most=MOST_ANSWERED))
