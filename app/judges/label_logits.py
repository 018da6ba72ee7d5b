"""Scores of a chat model: the logits of the labels A and B, with both orders of the responses."""

import math
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self, TypeVar

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError, StartupError
from app.core.fingerprint import JudgeIdentity
from app.core.preference import Score
from app.judges.prompts import PromptTemplate, rendered, rendered_pairs
from app.judges.quoting import FENCE_VERSION
from app.judges.scorer import Judged, JudgeKind, ScoreError, lost
from app.observability.telemetry import Telemetry
from app.ports import (
    CallTimes,
    Engine,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Reprompted,
    Sampling,
    no_stage,
)

T = TypeVar("T")
# Prompts and the times of their call -> the answers to them.
Ask = Callable[[list[Prompt], CallTimes], Awaitable[Sequence[T]]]

_EXPLAIN = "Explain it in at most 120 words."
_MOST_TOKENS_OF_TEXTS = 200
# A judge with less label mass would most likely answer with something other than a label.
LEAST_LABEL_MASS = 0.5
# The beginning of the answer for which the paper's prompt asks.
_FOUND_PREFILL = "[["
_ANY_PAIR = Comparison.of("x", "x", "x")


@dataclass(kw_only=True, eq=False)
class ChatScorer:
    """A chat model with a prompt template, on an engine that `start` starts."""

    engine: Engine
    template: PromptTemplate
    telemetry: Telemetry
    identity: JudgeIdentity = field(init=False)

    async def start(self, on_stage: OnStage = no_stage) -> Self:
        """Loads the model; see `Engine.start`."""
        started = await self.engine.start(self.template.render(_ANY_PAIR), on_stage)
        self.identity = self.identity_on(started)
        return self

    def identity_on(self, engine: EngineIdentity) -> JudgeIdentity:
        """The identity of the judge on an engine that has started."""
        return chat_identity(engine, self.template)

    async def stop(self) -> None:
        await self.engine.stop()

    async def lost(self) -> str:
        return await lost(self.engine)

    async def both_orders(
        self, comparisons: Sequence[Comparison], ask: Ask[T], *, answers: int = 1
    ) -> list[tuple[Sequence[T], Sequence[T]]]:
        """Asks the engine about both orders of all comparisons in one call.

        Returns:
            For each comparison, its answers with response_a shown first, and shown second.
        """
        if not comparisons:
            return []
        times = CallTimes()
        with times.rendering():
            prompts = await rendered_pairs(self.template, comparisons)
        with self.telemetry.calling(times, comparisons=len(comparisons), prompts=len(prompts)):
            answered = await ask(prompts, times)
        checked(answered, len(prompts), answers)
        orders = [answered[i : i + answers] for i in range(0, len(answered), answers)]
        return list(zip(orders[::2], orders[1::2], strict=True))

    async def explain(self, judged: Sequence[Judged]) -> list[str | None]:
        """Has the model explain its verdicts, of which it is told; see `ExplainingScorer`."""
        whole = await rendered(self.template.render, [comparison for comparison, _ in judged])
        prompts = {
            place: prompt._replace(
                user=f"{prompt.user}\n\nYour verdict is [[{side}]]. {_EXPLAIN}", prefill=""
            )
            for place, (prompt, (_, side)) in enumerate(zip(whole, judged, strict=True))
            if side is not None
        }
        texts: list[str | None] = [None] * len(judged)
        if not prompts:
            return texts
        times, seeds = CallTimes(), [0] * len(prompts)
        sampling = Sampling(max_tokens=_MOST_TOKENS_OF_TEXTS, temperature=0.0, seeds=seeds)
        with self.telemetry.calling(times, comparisons=0, prompts=len(prompts)):
            written = await self.engine.generate(list(prompts.values()), sampling, times)
        for place, text in zip(prompts, checked(written, len(prompts)), strict=True):
            texts[place] = text.text.strip() or None if isinstance(text, Generated) else None
        return texts


def checked(answered: Sequence[T], prompts: int, answers: int = 1) -> Sequence[T]:
    """The answers of an engine; raises JudgmentFailedError if there are too few or too many."""
    if len(answered) != prompts * answers:
        raise JudgmentFailedError(
            f"the engine returned {len(answered)} answers to {prompts} prompts"
        )
    return answered


class LabelLogitScorer(ChatScorer):
    """A chat model by its labels; both orders of all comparisons are one engine call."""

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        pairs = await self.both_orders(comparisons, self.engine.label_logits)
        return [score_of_orders(forward, reverse) for (forward,), (reverse,) in pairs]

    def weakness(self, score: Score) -> str | None:
        return label_weakness(score, self.template.prefill)

    async def find_prefill(self, comparisons: Sequence[Comparison]) -> bool:
        """Begins the answers with "[[", if only then the judge answers with a label.

        The paper's prompt asks for "[[A]]", and many models put their probability on "[[".

        Args:
            comparisons: Plain comparisons, which the judge scores without the prefill, and with it
                if it is weak without.

        Returns:
            Whether the judge has changed. It does not if it has a prefill, is not weak, or stays
            weak, and if its engine cannot change the prompt.
        """
        engine, before = self.engine, (self.template, self.identity)
        if self.template.prefill or not isinstance(engine, Reprompted):
            return False
        if await self._median_label_mass(comparisons) >= LEAST_LABEL_MASS:
            return False
        begun = replace(self.template, prefill=_FOUND_PREFILL)
        try:
            started = await engine.use_prompt(begun.render(_ANY_PAIR))
        except StartupError:
            return False
        self.template, self.identity = begun, chat_identity(started, begun)
        if await self._median_label_mass(comparisons) >= LEAST_LABEL_MASS:
            return True
        self.template, self.identity = before
        await engine.use_prompt(self.template.render(_ANY_PAIR))
        return False

    async def _median_label_mass(self, comparisons: Sequence[Comparison]) -> float:
        """0 if no comparison has a score."""
        scores = [each for each in await self.score(comparisons) if isinstance(each, Score)]
        return statistics.median([each.label_mass or 0.0 for each in scores] or [0.0])


def label_weakness(score: Score, prefill: str) -> str | None:
    """Returns advice if a model with a prefill would most likely answer without a label."""
    if score.label_mass is None or score.label_mass >= LEAST_LABEL_MASS:
        return None
    advice = f"without the prefill {prefill!r}" if prefill else 'SCOPE_PREFILL="[["'
    return (
        f"the labels A and B together have a probability of only {score.label_mass:.1e} in "
        f"this judge's answer, so its preferences are unreliable; try {advice}"
    )


def chat_identity(
    engine: EngineIdentity,
    template: PromptTemplate,
    *,
    kind: JudgeKind = "chat model",
    scoring: Mapping[str, object] = MappingProxyType({}),
    decides: Mapping[str, object] = MappingProxyType({}),
) -> JudgeIdentity:
    """Returns the identity of a chat model with a prompt template.

    Args:
        scoring: The options of a kind that makes scores in another way, as the judge describes it.
        decides: Further inputs of these scores.
    """
    described = {
        "model": engine.judge,
        "dtype": engine.dtype,
        "label_tokens": engine.label_tokens,
        "prefill": template.prefill,
    }
    return JudgeIdentity(
        name=engine.judge,
        inputs={
            **described,
            "weights": engine.weights,
            "chat_frame": engine.chat_frame,
            "system": template.system,
            "user": template.user,
            "fence": FENCE_VERSION,
            **engine.unusual,
            **({"scoring": {**scoring, **decides}} if scoring else {}),
        },
        described={
            **described,
            "kind": kind,
            "head_dtype": engine.head_dtype,
            "template": template.digest,
            **({"scoring": scoring} if scoring else {}),
        },
        runtime=engine.runtime,
        max_prompt_tokens=engine.max_prompt_tokens,
    )


def score_of_orders(
    forward: LabelLogits | PromptError, reverse: LabelLogits | PromptError
) -> Score | ScoreError:
    """The score of a comparison from its two orders; an error in either order is returned."""
    gap_fwd, gap_rev = label_gap(forward), label_gap(reverse)
    if not isinstance(gap_fwd, float):
        return gap_fwd
    if not isinstance(gap_rev, float):
        return gap_rev
    assert isinstance(forward, LabelLogits)
    assert isinstance(reverse, LabelLogits)
    # In the reverse order response_a is label B. `0.0 - x`, because `-x` makes -0.0 of a tie, and
    # -0.0 would be written as another number than 0.0.
    return Score(
        gap_fwd=gap_fwd,
        gap_rev=0.0 - gap_rev,
        label_mass=min(forward.label_mass, reverse.label_mass),
    )


def label_gap(order: LabelLogits | PromptError) -> float | ScoreError:
    """Logit of the response shown first minus logit of the other one, or the error."""
    if not isinstance(order, LabelLogits):
        return order
    if not (math.isfinite(order.a) and math.isfinite(order.b)):
        return JudgmentFailedError("the judge's label logits are not finite numbers")
    return float(order.a - order.b)
