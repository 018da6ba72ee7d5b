"""Scores of a chat model without log-probabilities: shares of votes, sampled in both orders."""

import hashlib
import hmac
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError
from app.core.fingerprint import JudgeIdentity, example_digest
from app.core.preference import CERTAIN_GAP, Score
from app.flow import off_loop
from app.judges.label_logits import ChatScorer, chat_identity
from app.judges.prompts import PromptTemplate
from app.judges.scorer import ScoreError
from app.ports import EngineIdentity, Generated, PromptError, Sampling

# Tokens of an answer: "[[A]]" has up to five; a JSON object has fields before its verdict.
_TOKENS, _TOKENS_OF_JSON = 16, 256
# Changes when the reading of answers changes, because then the same answers give other scores.
_READING = 1
# Equal shares are told apart by at most half of this. Different shares differ by more.
_TIE_BREAK = 1e-9
# With fewer parsed answers the judge is warned about at the start.
_FEW_PARSED = 0.9
_VERDICT = re.compile(r"\[\[([AB])\]\]|([AB])")


@dataclass(kw_only=True, eq=False)
class VoteScorer(ChatScorer):
    """A chat model that answers with a verdict, several times in each order of the responses.

    Args:
        samples: Number of answers in each order, at least 2.
        tie_key: Key of the hash that breaks ties of shares.
    """

    samples: int
    temperature: float
    tie_key: bytes = b""

    def identity_on(self, engine: EngineIdentity) -> JudgeIdentity:
        return chat_identity(
            engine,
            self.template,
            kind="chat model by votes",
            scoring={
                "kind": "votes",
                "samples": self.samples,
                "temperature": self.temperature,
                "left_out": list(engine.left_out),
            },
            decides={"max_tokens": most_tokens(self.template), "reading": _READING},
        )

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        draws = await draws_of(comparisons, self.identity.fingerprint)
        sampling = Sampling(
            max_tokens=most_tokens(self.template),
            temperature=self.temperature,
            seeds=[seed for draw in draws for seed in draw.seeds],
            n=self.samples,
        )
        pairs = await self.both_orders(
            comparisons,
            lambda prompts, times: self.engine.generate(prompts, sampling, times),
            answers=self.samples,
        )
        scores = [
            score_of_votes(self._votes(forward), self._votes(reverse), tie=draw.tie(self.tie_key))
            for (forward, reverse), draw in zip(pairs, draws, strict=True)
        ]
        voted = [score for score in scores if isinstance(score, Score)]
        self.telemetry.voted_pairs += len(voted)
        self.telemetry.unanimous_pairs += sum(map(is_unanimous, voted))
        return scores

    def _votes(self, answers: Sequence[Generated | PromptError]) -> "Votes | PromptError":
        """Counts the votes of one order; the error of any answer is that of the order."""
        verdicts = []
        for answer in answers:
            if not isinstance(answer, Generated):
                return answer
            verdicts.append(verdict_of(answer.text, self.template))
        return Votes(verdicts.count("A"), verdicts.count("B"), len(verdicts))

    def weakness(self, score: Score) -> str | None:
        if score.label_mass is None or score.label_mass >= _FEW_PARSED:
            return None
        return (
            f"only {score.label_mass:.0%} of this judge's answers are a verdict and nothing else, "
            'so many votes are lost; ask for "[[A]]" or "[[B]]" alone in SCOPE_PROMPT_FILE'
        )


class Draw(NamedTuple):
    """The numbers of a comparison on which its votes depend, the same whenever it is judged.

    Args:
        digest: Digest of the comparison in either order of its responses.
        seeds: First seed of the forward order, and of the reverse one. The swapped comparison has
            them the other way round.
    """

    digest: str
    seeds: tuple[int, int]

    @classmethod
    def of(cls, comparison: Comparison, fingerprint: str) -> "Draw":
        """The numbers of a comparison before a judge."""
        digest = example_digest(fingerprint, comparison)
        hashed = hashlib.sha256(f"seed {digest}".encode()).digest()
        # Servers take seeds below 2^31, and each sample adds 1.
        first, second = (int.from_bytes(hashed[i : i + 4], "big") >> 2 for i in (0, 4))
        in_order = comparison.response_a <= comparison.response_b
        return cls(digest, (first, second) if in_order else (second, first))

    def tie(self, key: bytes) -> float:
        """A number in [0, 1) by which ties are broken; nobody without the key can choose it."""
        hashed = hmac.digest(key, self.digest.encode(), "sha256")
        return int.from_bytes(hashed[:6], "big") / 2**48


async def draws_of(comparisons: Sequence[Comparison], fingerprint: str) -> list[Draw]:
    """The numbers of comparisons before a judge, computed in a thread."""
    return await off_loop(lambda: [Draw.of(each, fingerprint) for each in comparisons])


class Votes(NamedTuple):
    """The votes of one order: for the response shown first, for the other one, and answers."""

    first: int
    second: int
    answers: int

    @property
    def parsed(self) -> int:
        """Number of answers that are a vote."""
        return self.first + self.second


def verdict_of(text: str, template: PromptTemplate) -> str | None:
    """Reads "A" or "B" from an answer; None if it is anything else.

    The first line must be the verdict and nothing else: "[[A]]", or "A". If the template asks for
    JSON, the whole answer may be an object whose last field is the verdict.
    """
    whole = (template.prefill + text).strip()
    first_line = whole.partition("\n")[0].strip()
    match = _VERDICT.fullmatch(first_line)
    if match is None and _asks_for_json(template):
        match = _VERDICT.fullmatch(_last_field(whole))
    return None if match is None else match[1] or match[2]


def _last_field(text: str) -> str:
    """The value of the last field of a JSON object; empty if the text is anything else."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict) or not value:
        return ""
    return str(list(value.values())[-1])


def _asks_for_json(template: PromptTemplate) -> bool:
    return re.search(r"\bJSON\b", f"{template.system}\n{template.user}") is not None


def most_tokens(template: PromptTemplate) -> int:
    """The largest number of tokens of a verdict."""
    return _TOKENS_OF_JSON if _asks_for_json(template) else _TOKENS


def score_of_votes(
    forward: Votes | PromptError, reverse: Votes | PromptError, *, tie: float
) -> Score | ScoreError:
    """The score of a comparison: in each order, the share of the votes as log-odds.

    All unanimous pairs have the same uncertainty, and thresholds test and accept them as one block.
    Other equal shares are ordered by a hash of the comparison: each share moves towards one half by
    at most 5e-10. A hash among unanimous pairs would let the first test begin inside the block,
    where it has no more power than chance (docs/design/guarantees.md).

    Args:
        forward: The votes with response_a shown first, or the error of this order.
        reverse: The votes with response_b shown first, or the error of this order.
        tie: In [0, 1).
    """
    if not isinstance(forward, Votes):
        return forward
    if not isinstance(reverse, Votes):
        return reverse
    for votes in (forward, reverse):
        if 2 * votes.parsed < votes.answers:
            return JudgmentFailedError(
                f"only {votes.parsed} of {votes.answers} answers of the judge are a verdict"
            )
    for_a = forward.first + reverse.second
    unanimous = for_a in (0, forward.parsed + reverse.parsed)
    towards_half = 0.0 if unanimous else _TIE_BREAK * tie
    return Score(
        gap_fwd=_gap(forward.first, forward.second, towards_half),
        gap_rev=_gap(reverse.second, reverse.first, towards_half),
        label_mass=min(votes.parsed / votes.answers for votes in (forward, reverse)),
    )


def _gap(for_a: int, for_b: int, towards_half: float) -> float:
    """Log-odds of response_a; mirrored votes give the negative number, to the last bit."""
    smaller = min(for_a, for_b) / (for_a + for_b)
    smaller += (0.5 - smaller) * towards_half
    size = CERTAIN_GAP if smaller == 0.0 else math.log1p(-smaller) - math.log(smaller)
    return size if for_a > for_b else 0.0 - size


def is_unanimous(score: Score) -> bool:
    """Whether all votes in both orders are for one response."""
    forward, reverse = score.gaps
    return abs(forward) == CERTAIN_GAP and forward == reverse
