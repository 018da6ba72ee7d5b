"""`scope-judge serve` with a scripted judge of a known capacity: so many at once, each so long.

python -m tests.drills.faults.slow_service AT_ONCE SECONDS_EACH

With the scripted engine as it is shipped, the service's own work would be the capacity, and the
clients on the same two cores would be a part of it.
"""

import asyncio
import sys
from collections.abc import Sequence

from app.cli import main
from app.engines.scripted import ScriptedEngine
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.wiring import services


class BoundedEngine(ScriptedEngine):
    """Judges a number of comparisons at once, in the order in which they came.

    Args:
        at_once: Comparisons.
        each_s: How long each takes.
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
    # The one place that names engines; all else is what users start.
    engine = BoundedEngine(at_once, each_s)
    services.make_engine = lambda settings: engine  # type: ignore[attr-defined]
    sys.argv = ["scope-judge", "serve"]
    main()
