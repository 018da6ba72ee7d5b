"""`scope-judge serve` with a scripted judge that answers one prompt at a time.

python -m tests.integration.processes.saturated_judge SECONDS_PER_PROMPT
"""

import asyncio
import sys
from collections.abc import Sequence

from app.cli import main
from app.judges.engines.scripted import ScriptedEngine
from app.judges.engines.turns import Pace, Turns
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.wiring import scorers


class OneByOne(ScriptedEngine):
    """Answers one prompt at a time, and schedules calls as the engine for OpenAI's servers does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._pace, self._turns = Pace(), Turns()

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        with self._pace.call(len(prompts)) as turns:
            await asyncio.gather(*(self._answer(turn) for turn in turns))
        return await super().label_logits(prompts, times)

    async def _answer(self, turn: int) -> None:
        async with self._turns.turn(turn):
            await asyncio.sleep(self._seconds)
        self._pace.note_done()


if __name__ == "__main__":
    engine = OneByOne(float(sys.argv[1]))
    # Replaces only the place that makes engines; everything else is the command that users run.
    scorers.make_engine = lambda settings: engine  # type: ignore[attr-defined]
    sys.argv = ["scope-judge", "serve"]
    main()
