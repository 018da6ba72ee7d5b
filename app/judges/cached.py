"""Scores that were paid for are kept: a repeated comparison costs no call of the judge."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.circuit_breaker import CircuitBreaker
from app.core.comparison import Comparison
from app.core.fingerprint import JudgeIdentity, digest_of_json, example_digest
from app.core.preference import NoScore, Score, score_of_json
from app.flow import off_loop
from app.judges.scorer import ScoreOutcome, Scorer
from app.judges.thoughts import UNFINISHED
from app.observability.telemetry import Telemetry
from app.ports import ScoreStore

_DIGITS = 32


class _Key(NamedTuple):
    """The slot of a comparison in either order of its responses.

    Args:
        check: 32 hexadecimal digits, by which the slot's comparison is recognized.
        is_swapped: Whether the slot keeps the score of the other order.
    """

    slot: int
    check: str
    is_swapped: bool

    def turned(self, score: ScoreOutcome) -> ScoreOutcome:
        """Turns the slot's score into the comparison's, and vice versa."""
        return score.swapped if self.is_swapped and isinstance(score, Score | NoScore) else score


class CachingScorer:
    """Answers repeated comparisons with kept scores, and lets a scorer answer the others.

    The store has a fixed number of slots. The digest of a comparison, which includes the judge's
    fingerprint and runtime, decides its slot, and the newest score replaces an earlier one. So the
    size is bounded without any list of what is kept. Texts are not kept.

    Without an answer of the store the scorer scores everything, as if nothing was kept.
    """

    def __init__(
        self,
        scorer: Scorer,
        store: ScoreStore,
        telemetry: Telemetry,
        *,
        seconds: int,
        slots: int,
    ) -> None:
        self._scorer = scorer
        self._store = store
        self._breaker = CircuitBreaker(telemetry)
        self._seconds = seconds
        self._slots = slots

    @property
    def identity(self) -> JudgeIdentity:
        return self._scorer.identity

    async def score(self, comparisons: Sequence[Comparison]) -> Sequence[ScoreOutcome]:
        keys = await off_loop(self._keys, comparisons)
        # Scores by comparison, as if the responses were in the order of the slot.
        scores: dict[str, ScoreOutcome] = dict(await self._kept(keys))
        new: dict[str, int] = {}
        for place, key in enumerate(keys):
            if key.check not in scores:
                new.setdefault(key.check, place)
        fresh = await self._scorer.score([comparisons[place] for place in new.values()])
        for place, score in zip(new.values(), fresh, strict=True):
            scores[keys[place].check] = keys[place].turned(score)
        await self._keep([keys[place] for place in new.values()], scores)
        return [
            _repeated(key.turned(scores[key.check]), place != new.get(key.check))
            for place, key in enumerate(keys)
        ]

    def _keys(self, comparisons: Sequence[Comparison]) -> list[_Key]:
        # Scores of another runtime differ by rounding.
        judge = digest_of_json([self.identity.fingerprint, self.identity.runtime])
        digests = [example_digest(judge, comparison) for comparison in comparisons]
        return [
            _Key(
                slot=int(digest[_DIGITS:], 16) % self._slots,
                check=digest[:_DIGITS],
                is_swapped=comparison.response_a > comparison.response_b,
            )
            for digest, comparison in zip(digests, comparisons, strict=True)
        ]

    async def _kept(self, keys: Sequence[_Key]) -> dict[str, Score | NoScore]:
        """Returns the kept scores by comparison; none if the store does not answer in time."""
        slots = sorted({key.slot for key in keys})
        nothing: dict[int, str] = {}
        texts = await self._breaker.ask(lambda: self._store.kept_scores(slots), nothing)
        read = {key.check: _read(texts.get(key.slot), key.check) for key in keys}
        return {check: score for check, score in read.items() if score is not None}

    async def _keep(self, keys: Sequence[_Key], scores: Mapping[str, ScoreOutcome]) -> None:
        """Keeps scores; errors are not kept, nor that a large judge was away."""
        texts = {
            key.slot: _written(score, key.check)
            for key in keys
            if isinstance(score := scores[key.check], Score) or score == UNFINISHED
        }
        if texts:
            await self._breaker.ask(
                lambda: self._store.keep_scores(texts, seconds=self._seconds), None
            )

    def weakness(self, score: Score) -> str | None:
        return self._scorer.weakness(score)

    async def lost(self) -> str:
        return await self._scorer.lost()

    async def stop(self) -> None:
        await self._scorer.stop()


def _repeated(score: ScoreOutcome, is_repeated: bool) -> ScoreOutcome:
    return replace(score, cached=True) if is_repeated and isinstance(score, Score) else score


def _written(score: Score | NoScore, check: str) -> str:
    if isinstance(score, NoScore):
        return json.dumps([check, score.reason])
    return json.dumps([check, score.gap_fwd, score.gap_rev, score.label_mass])


def _read(text: str | None, check: str) -> Score | NoScore | None:
    """Reads the score of a slot.

    Returns None if the slot is empty, keeps another comparison, or has what this service does not
    write: another program must not make verdicts.
    """
    if text is None:
        return None
    try:
        of_comparison, *numbers = json.loads(text)
        if of_comparison != check:
            return None
        return UNFINISHED if numbers == [UNFINISHED.reason] else score_of_json(*numbers)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
