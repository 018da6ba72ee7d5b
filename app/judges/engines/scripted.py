"""A deterministic judge without a model, for tests, demonstrations and load tests."""

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Sequence

from app.core.errors import JudgmentFailedError
from app.ports import (
    ANY_LENGTH,
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Sampling,
    Thought,
    no_stage,
)

# Probability of all tokens other than A and B.
_OTHER_MASS = 0.01
# Calls with more characters run in a thread; this many take the script a few milliseconds.
_MOST_CHARACTERS_ON_THE_LOOP = 2**17
# The number of digits is bounded: 400 digits would be an infinite gap, which is not a judgment.
_QUALITY = re.compile(r"quality=(-?\d{1,9}(?:\.\d{1,20})?)")
_ASKS_FOR_SCORE = re.compile(r"\bscore between 0\.0\b.*\b1\.0\b")
_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s]|$)")

Script = Callable[[Prompt], LabelLogits | PromptError]
# Prompt, temperature and seed -> answer.
Writer = Callable[[Prompt, float, int], Generated | PromptError]


def logits_of_gap(gap: float, *, label_mass: float = 1.0 - _OTHER_MASS) -> LabelLogits:
    """Label logits with a given gap (logit of A minus logit of B) and label mass."""
    a = -math.log1p(math.exp(-gap)) if gap > -700 else gap
    b = -math.log1p(math.exp(gap)) if gap < 700 else -gap
    return LabelLogits(a + math.log(label_mass), b + math.log(label_mass))


def by_quality(prompt: Prompt) -> LabelLogits:
    """Judges by the quality that each response states, as in "quality=1.5".

    The gap is the second-last stated quality minus the last, because demonstrations may come before
    the comparison. A prompt with fewer than two gets a gap in [-4, 4) from its digest.
    """
    marks = _QUALITY.findall(prompt.user)
    if len(marks) >= 2:
        return logits_of_gap(float(marks[-2]) - float(marks[-1]))
    return logits_of_gap(8.0 * _share(*prompt[:3]) - 4.0)


def _share(*parts: str) -> float:
    """A number in [0, 1), computed from a digest of the parts."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


class ScriptedEngine:
    """An engine whose answers are computed by functions.

    Args:
        latency_s: Duration of each call, in seconds.
        judge: The judge's name; another name makes another judge.
        writer: By default, an answer in words is the script's verdict, "[[A]]"; if the prompt asks
            for a score, "[[A]] 0.87" with the probability of the likelier label.
    """

    def __init__(
        self,
        script: Script = by_quality,
        *,
        latency_s: float = 0.0,
        judge: str = "scripted",
        writer: Writer | None = None,
    ) -> None:
        self._script = script
        self._latency_s = latency_s
        self._judge = judge
        self._writer = writer or self._verdict

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        return EngineIdentity(
            judge=self._judge,
            weights=getattr(self._script, "__qualname__", "script"),
            chat_frame="",
            label_tokens=(0, 1),
            dtype="float64",
            max_prompt_tokens=ANY_LENGTH,
            think_end="</think>",
        )

    async def stop(self) -> None:
        pass

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        await asyncio.sleep(self._latency_s)
        if sum(len(prompt.user) for prompt in prompts) <= _MOST_CHARACTERS_ON_THE_LOOP:
            return self._answers(prompts)
        return await asyncio.to_thread(self._answers, prompts)

    def _answers(self, prompts: Sequence[Prompt]) -> list[LabelLogits | PromptError]:
        return [self._script(prompt) for prompt in prompts]

    async def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Generated | PromptError]:
        asked = list(zip(prompts, sampling.seeds, strict=True))
        await asyncio.sleep(self._latency_s)
        return [
            _cut(
                self._writer(prompt, sampling.temperature, seed + i),
                max_tokens=sampling.max_tokens,
            )
            for prompt, seed in asked
            for i in range(sampling.n)
        ]

    async def think(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Thought | PromptError]:
        """Reads the script's labels behind a thought of a few words, which moves them a little.

        The thought has 1 to 8 words, drawn by the prompt and the seed.
        """
        asked = list(zip(prompts, sampling.seeds, strict=True))
        await asyncio.sleep(self._latency_s)
        return [
            self._thought(prompt, sampling.temperature, seed + i, max_tokens=sampling.max_tokens)
            for prompt, seed in asked
            for i in range(sampling.n)
        ]

    def _thought(
        self, prompt: Prompt, temperature: float, seed: int, *, max_tokens: int
    ) -> Thought | PromptError:
        logits = self._script(prompt)
        if not isinstance(logits, LabelLogits):
            return logits
        drawn = _share(f"thought {seed}", *prompt[:3])
        words = 1 + int(8 * drawn)
        text = " ".join(["hmm"] * min(words, max_tokens))
        # Its end is a token, too.
        if words >= max_tokens:
            return Thought(text, None)
        return Thought(text, logits_of_gap(logits.a - logits.b + temperature * (drawn - 0.5)))

    def _verdict(self, prompt: Prompt, temperature: float, seed: int) -> Generated | PromptError:
        logits = self._script(prompt)
        if not isinstance(logits, LabelLogits):
            return logits
        gap = logits.a - logits.b
        if not math.isfinite(gap):
            return JudgmentFailedError("the script's label logits are not finite numbers")
        prefers_a = gap >= 0.0
        if temperature > 0.0:
            drawn = _share(str(seed), *prompt[:3])
            prefers_a = drawn < _sigmoid(gap / temperature)
        text = "[[A]]" if prefers_a else "[[B]]"
        # A template without a system message asks for the score in the last line of the user's.
        if _ASKS_FOR_SCORE.search(prompt.system or prompt.user.rpartition("\n")[2]):
            text += f" {_sigmoid(abs(gap)):.2f}"
        prefilled = max(i for i in range(len(text)) if prompt.prefill.endswith(text[:i]))
        return Generated(text[prefilled:], complete=True)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


def _cut(answer: Generated | PromptError, *, max_tokens: int) -> Generated | PromptError:
    """Cuts an answer at the token limit, in which the end of the turn is a token, too."""
    if not isinstance(answer, Generated):
        return answer
    tokens = [match[0] for match in _TOKEN.finditer(answer.text) if match[0]]
    if len(tokens) < max_tokens:
        return answer
    return Generated("".join(tokens[:max_tokens]), complete=False)
