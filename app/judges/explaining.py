"""Explanations that a judge writes after its verdict. They are not the reason for the verdict."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from app.core.comparison import Comparison, Side
from app.core.errors import JudgmentFailedError
from app.judges.prompts import PromptTemplate, rendered
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Engine, Generated, Sampling

_MOST_TOKENS = 200
# A comparison, and the side that the judge prefers; None without a preference.
Judged = tuple[Comparison, Side | None]


@runtime_checkable
class ExplainingScorer(Protocol):
    """A scorer that can explain a judgment in words."""

    async def explain(self, judged: Sequence[Judged]) -> list[str | None]:
        """Returns texts about judged comparisons; nothing keeps them.

        Returns:
            For each comparison, in order, its text; None if the judge did not write it, or writes
            none without a preference.

        Raises:
            UnavailableError: The engine does not answer.
            JudgmentFailedError: The model returned a wrong number of texts.
        """


async def written_afterwards(
    engine: Engine,
    template: PromptTemplate,
    judged: Sequence[Judged],
    telemetry: Telemetry,
) -> list[str | None]:
    """Has a chat model explain its verdicts, of which it is told; see `ExplainingScorer`."""
    prompts = {}
    whole = await rendered(template.render, [comparison for comparison, _ in judged])
    for place, (prompt, (_, side)) in enumerate(zip(whole, judged, strict=True)):
        asked = f"Your verdict is [[{side}]]. Explain it in at most 120 words."
        if side is not None:
            prompts[place] = prompt._replace(user=f"{prompt.user}\n\n{asked}", prefill="")
    texts: list[str | None] = [None] * len(judged)
    if not prompts:
        return texts
    times = CallTimes()
    with telemetry.calling(times, comparisons=0, prompts=len(prompts)):
        written = await engine.generate(
            list(prompts.values()),
            Sampling(max_tokens=_MOST_TOKENS, temperature=0.0, seeds=[0] * len(prompts)),
            times=times,
        )
    if len(written) != len(prompts):
        raise JudgmentFailedError(
            f"the engine returned {len(written)} texts on {len(prompts)} prompts"
        )
    for place, text in zip(prompts, written, strict=True):
        texts[place] = text.text.strip() or None if isinstance(text, Generated) else None
    return texts
