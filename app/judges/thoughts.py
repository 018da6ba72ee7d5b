"""Scores of a chat model that thinks before its verdict, in both orders of the responses."""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from app.core.comparison import Comparison
from app.core.errors import StartupError
from app.core.fingerprint import JudgeIdentity
from app.core.preference import NoScore, Score
from app.judges.label_logits import (
    ChatScorer,
    chat_identity,
    checked,
    label_gap,
    label_weakness,
    score_of_orders,
)
from app.judges.prompts import rendered
from app.judges.scorer import Judged, ScoreError, ScoreOutcome
from app.judges.votes import Draw, Votes, draws_of, most_tokens, score_of_votes, verdict_of
from app.ports import (
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Sampling,
    Thought,
    is_ahead,
    no_stage,
)

logger = logging.getLogger("app.judge")

# Changes when the same thoughts would give other scores.
_READING = 1
# Thoughts in each order, and answers in each order where verdicts are votes.
_SAMPLES, _VOTES = 1, 16
# Tokens of the thought that measures the speed of a start.
_MEASURED_TOKENS = 64

_PROBE = Comparison.of("x", "x", "x")
UNFINISHED = NoScore(reason="thought_unfinished")


@dataclass(kw_only=True, eq=False)
class ThoughtScorer(ChatScorer):
    """A chat model that thinks, with the labels read behind each thought.

    In each order the probability is the mean over the thoughts. One thought without an end makes
    the comparison one without a score: a judgment of the finished ones alone would depend on which
    of them end, and asking again until all do would break the promise (docs/design/guarantees.md).

    A server that cannot continue a thought answers with a message, whose verdict is a vote. Then
    messages without an end are no votes, and a comparison has no score if most have none.

    Args:
        samples: Thoughts in each order; 0 for 1, or 16 where verdicts are votes.
        max_tokens: Largest number of tokens of a thought.
        timeout_s: A request is stopped after this. If a thought takes longer at the speed that the
            start measures, the log has advice.
        tie_key: Key of the hash that breaks ties of votes.
    """

    samples: int
    max_tokens: int
    temperature: float
    timeout_s: float = math.inf
    tie_key: bytes = b""
    votes: bool = field(init=False)

    async def start(self, on_stage: OnStage = no_stage) -> Self:
        await super().start(on_stage)
        if self.votes and self.samples == 1:
            raise StartupError(
                "these servers cannot continue a thought, so their verdicts are votes, and one "
                "vote in each order says too little: set SCOPE_SAMPLES to 8 or more, or unset it"
            )
        longest = self.identity.max_prompt_tokens
        if longest < 1:
            raise StartupError(
                f"SCOPE_THINK_TOKENS={self.max_tokens} leaves no room for a prompt in the "
                f"context of {longest + self.max_tokens + 1} tokens: set it to less"
            )
        if self.timeout_s < math.inf:
            on_stage("measuring the speed of its thoughts")
            speed = await self._tokens_per_s(self.template.render(_PROBE))
            advice = advice_on_timeout(speed, self.max_tokens, self.timeout_s)
            if advice is not None:
                logger.warning("%s", advice)
        return self

    def identity_on(self, engine: EngineIdentity) -> JudgeIdentity:
        self.votes = engine.think_end is None
        self.samples = self.samples or (_VOTES if self.votes else _SAMPLES)
        identity = chat_identity(
            engine,
            self.template,
            kind="chat model that thinks",
            scoring={
                "kind": "thoughts",
                "samples": self.samples,
                "temperature": self.temperature,
                "think_tokens": self.max_tokens,
                "think_end": engine.think_end,
                "left_out": list(engine.left_out),
            },
            decides={"reading": _READING},
        )
        return replace(identity, max_prompt_tokens=identity.max_prompt_tokens - self.max_tokens)

    async def _tokens_per_s(self, prompt: Prompt) -> float | None:
        """Measures how fast one thought is written alone; None if the engine does not count."""
        times, begun = CallTimes(), time.perf_counter()
        short = replace(self._sampling([0]), max_tokens=_MEASURED_TOKENS)
        await self._written([prompt], short, times)
        return times.written_tokens / (time.perf_counter() - begun) or None

    async def score(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Scores comparisons; all thoughts in both orders are one call of the engine.

        A probe is answered without a thought, because it asks only whether the engine works.
        """
        if is_ahead():
            return await self._probed(comparisons)
        draws = await draws_of(comparisons, self.identity.fingerprint)
        sampling = self._sampling([seed for draw in draws for seed in draw.seeds], self.samples)
        pairs = await self.both_orders(
            comparisons,
            lambda prompts, times: self._written(prompts, sampling, times),
            answers=self.samples,
        )
        return [
            self._score(forward, reverse, draw)
            for (forward, reverse), draw in zip(pairs, draws, strict=True)
        ]

    async def explain(self, judged: Sequence[Judged]) -> list[str | None]:
        """Returns a thought of the judge about each comparison, in the forward order."""
        comparisons = [comparison for comparison, _ in judged]
        draws = await draws_of(comparisons, self.identity.fingerprint)
        sampling = self._sampling([draw.seeds[0] for draw in draws])
        prompts = await rendered(self.template.render, comparisons)
        times = CallTimes()
        with self.telemetry.calling(times, comparisons=0, prompts=len(prompts)):
            written = await self._written(prompts, sampling, times)
        return [_thought_of(each) for each in checked(written, len(prompts))]

    async def _written(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes
    ) -> Sequence[Thought | Generated | PromptError]:
        """Has the judge think; a message has room for its verdict behind the thought."""
        if not self.votes:
            return await self.engine.think(prompts, sampling, times)
        with_verdict = sampling.max_tokens + most_tokens(self.template)
        return await self.engine.generate(
            prompts, replace(sampling, max_tokens=with_verdict), times
        )

    def _sampling(self, seeds: Sequence[int], samples: int = 1) -> Sampling:
        return Sampling(
            max_tokens=self.max_tokens, temperature=self.temperature, seeds=seeds, n=samples
        )

    async def _probed(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Scores with the labels behind an empty thought; any message is a sign of life."""
        if not self.votes:
            labels = await self.both_orders(comparisons, self.engine.label_logits)
            return [score_of_orders(forward, reverse) for (forward,), (reverse,) in labels]
        short = replace(self._sampling([0] * (2 * len(comparisons))), max_tokens=1)
        messages = await self.both_orders(
            comparisons, lambda prompts, times: self._written(prompts, short, times)
        )
        return [
            next((each for each in both if isinstance(each, PromptError)), UNFINISHED)
            for both in ((*forward, *reverse) for forward, reverse in messages)
        ]

    def _score(
        self,
        forward: Sequence[Thought | Generated | PromptError],
        reverse: Sequence[Thought | Generated | PromptError],
        draw: Draw,
    ) -> ScoreOutcome:
        if not self.votes:
            return score_of_orders_after(forward, reverse)
        votes = [self._count(order) for order in (forward, reverse)]
        if UNFINISHED in votes:
            return UNFINISHED
        first, second = votes
        assert not isinstance(first, NoScore)
        assert not isinstance(second, NoScore)
        return score_of_votes(first, second, tie=draw.tie(self.tie_key))

    def _count(
        self, messages: Sequence[Thought | Generated | PromptError]
    ) -> Votes | NoScore | PromptError:
        """Counts the votes of one order; the error of any message is that of the order."""
        for message in messages:
            if isinstance(message, PromptError):
                return message
        ended = [each for each in messages if isinstance(each, Generated) and each.complete]
        if 2 * len(ended) < len(messages):
            return UNFINISHED
        verdicts = [verdict_of(message.text, self.template) for message in ended]
        return Votes(verdicts.count("A"), verdicts.count("B"), len(ended))

    def weakness(self, score: Score) -> str | None:
        return None if self.votes else label_weakness(score, self.template.prefill)


def _thought_of(written: Thought | Generated | PromptError) -> str | None:
    if isinstance(written, Thought):
        return written.text
    return written.thought if isinstance(written, Generated) else None


def score_of_orders_after(
    forward: Sequence[Thought | Generated | PromptError],
    reverse: Sequence[Thought | Generated | PromptError],
) -> ScoreOutcome:
    """The score of a comparison from its thoughts in both orders.

    A thought without an end decides, also where another one has an error: asking again would not
    change it.
    """
    for thought in (*forward, *reverse):
        if isinstance(thought, Thought) and thought.labels is None:
            return UNFINISHED
    return score_of_orders(_mean(forward), _mean(reverse))


def _mean(thoughts: Sequence[Thought | Generated | PromptError]) -> LabelLogits | ScoreError:
    """The label probabilities of one order: the mean over its thoughts."""
    labels = []
    for thought in thoughts:
        if isinstance(thought, PromptError):
            return thought
        assert isinstance(thought, Thought)
        assert thought.labels is not None
        gap = label_gap(thought.labels)
        if not isinstance(gap, float):
            return gap
        labels.append(thought.labels)
    if len(labels) == 1:
        return labels[0]
    mass = math.log(sum(each.label_mass for each in labels) / len(labels))
    gaps = np.array([each.a - each.b for each in labels])
    # Logarithms, because a probability of one label may be too small for a float.
    log_a = float(np.logaddexp.reduce(-np.logaddexp(0.0, -gaps))) - math.log(len(gaps))
    log_b = float(np.logaddexp.reduce(-np.logaddexp(0.0, gaps))) - math.log(len(gaps))
    return LabelLogits(log_a + mass, log_b + mass)


def advice_on_timeout(tokens_per_s: float | None, max_tokens: int, timeout_s: float) -> str | None:
    """Advice if a thought of full length takes longer than a request may; None if it does not."""
    if tokens_per_s is None or max_tokens <= tokens_per_s * timeout_s:
        return None
    needed = math.ceil(max_tokens / tokens_per_s / 10.0) * 10
    return (
        f"a thought of SCOPE_THINK_TOKENS={max_tokens} tokens takes about {needed} s alone, at the "
        f"measured {tokens_per_s:.0f} tokens/s, and SCOPE_TIMEOUT_S stops a request after "
        f"{timeout_s:g} s: set SCOPE_TIMEOUT_S to {2 * needed} or more, or SCOPE_THINK_TOKENS to "
        f"{int(tokens_per_s * timeout_s)} or less"
    )
