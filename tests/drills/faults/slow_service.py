"""`scope-judge serve` with a scripted judge of a known capacity.

python -m tests.drills.faults.slow_service AT_ONCE SECONDS_EACH

With the shipped scripted engine the service's own work would limit the capacity, and so would the
clients on the same two cores.
"""

import asyncio
import sys
from collections.abc import Sequence

from app.cli import main
from app.engines.scripted import ScriptedEngine
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.wiring import scorers


class BoundedEngine(ScriptedEngine):
    """Judges a limited number of comparisons at once, in the order of their arrival.

    Args:
        at_once: Number of comparisons judged at once.
        each_s: Seconds for each comparison.
    """

    def __init__(self, at_once: int, each_s: float) -> None:
        super().__init__()
        self._places = asyncio.Semaphore(at_once)
        self._each_s = each_s

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(0, len(prompts), 2):
                tasks.create_task(self._take_a_place())
        return await super().label_logits(prompts, times)

    async def _take_a_place(self) -> None:
        async with self._places:
            await asyncio.sleep(self._each_s)


if __name__ == "__main__":
    at_once, each_s = int(sys.argv[1]), float(sys.argv[2])
    # Replaces only the place that makes engines; everything else is the command that users run.
    engine = BoundedEngine(at_once, each_s)
    scorers.make_engine = lambda settings: engine  # type: ignore[attr-defined]
    sys.argv = ["scope-judge", "serve"]
    main()
