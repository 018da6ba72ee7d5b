"""A judge that is too slow for large batches, and fails on some texts."""

import math
from collections.abc import Sequence

from app.core.errors import DeadlineExceededError
from app.judges.engines.scripted import ScriptedEngine, by_quality
from app.ports import CallTimes, LabelLogits, Prompt, PromptError

BROKEN = "BROKEN"


class LimitedJudge(ScriptedEngine):
    """Judges by quality.

    Args:
        most: Largest number of pairs that it judges before the service's deadline.
    """

    def __init__(self, most: int) -> None:
        super().__init__(_script)
        self._most = most

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        if len(prompts) > 2 * self._most:
            raise DeadlineExceededError("the judge is too slow for so many")
        return await super().label_logits(prompts, times)


def _script(prompt: Prompt) -> LabelLogits:
    return LabelLogits(math.nan, math.nan) if BROKEN in prompt.user else by_quality(prompt)
