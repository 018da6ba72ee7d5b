"""Explanations that a judge writes after its verdict. They are not the reason of the verdict."""

from typing import Protocol, runtime_checkable

from app.core.comparison import Comparison, Side
from app.judges.calls import observed_call
from app.judges.prompts import PromptTemplate
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Generated, TextGenerator

_MOST_TOKENS = 200


@runtime_checkable
class ExplainingScorer(Protocol):
    """A scorer that can explain a judgment in words."""

    async def explain(self, comparison: Comparison, side: Side | None) -> str | None:
        """Returns a text about a comparison that was judged; nothing keeps it.

        Args:
            comparison: The comparison.
            side: The side that the judge prefers; None if it has no preference.

        Returns:
            The text, or None if there is nothing to explain, or the judge did not write it.

        Raises:
            UnavailableError: The engine does not answer.
        """


async def written_afterwards(
    engine: TextGenerator,
    template: PromptTemplate,
    comparison: Comparison,
    side: Side | None,
    telemetry: Telemetry,
) -> str | None:
    """Has a chat model explain its verdict, of which it is told; see `ExplainingScorer`."""
    if side is None:
        return None
    prompt = template.render(comparison)
    asked = f"Your verdict is [[{side}]]. Explain it in at most 120 words."
    prompt = prompt._replace(user=f"{prompt.user}\n\n{asked}", prefill="")
    times = CallTimes()
    with observed_call(telemetry, times, comparisons=0, prompts=1):
        (text,) = await engine.generate(
            [prompt], max_tokens=_MOST_TOKENS, temperature=0.0, seeds=[0], times=times
        )
    return text.text.strip() or None if isinstance(text, Generated) else None
