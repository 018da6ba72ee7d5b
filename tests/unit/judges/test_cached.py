"""Kept scores: what costs a call of the judge, and that nothing else becomes a score."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest

from app.core.comparison import Comparison
from app.core.errors import JudgmentFailedError, StoreUnavailableError
from app.core.fingerprint import JudgeIdentity
from app.core.preference import Score
from app.judges.cached import CachingScorer
from app.judges.scorer import ScoreError
from app.observability.telemetry import Telemetry
from app.stores.memory import MemoryStore

FAILING = "fails"


class CountingScorer:
    """Scores by the lengths of the responses, and remembers what it was asked."""

    def __init__(self, *, orders: int = 2, version: str = "1", runtime: str = "vLLM 1") -> None:
        self.identity = JudgeIdentity(
            name="counting",
            inputs={"version": version},
            described={"model": "counting"},
            max_prompt_tokens=100,
            runtime=runtime,
        )
        self.asked: list[Comparison] = []
        self._orders = orders

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        self.asked += comparisons
        return [self._score(comparison) for comparison in comparisons]

    def _score(self, comparison: Comparison) -> Score | ScoreError:
        a, b = comparison.response_a[0], comparison.response_b[0]
        if FAILING in (a, b):
            return JudgmentFailedError("it fails")
        gap = float(len(a) - len(b))
        if self._orders == 1:
            return Score(gap_fwd=gap, gap_rev=None, label_mass=None)
        # The response that is shown first gains one.
        return Score(gap_fwd=gap + 1.0, gap_rev=gap - 1.0, label_mass=0.75)

    def weakness(self, score: Score) -> str | None:
        return None

    async def lost(self) -> str:
        return "lost"

    async def stop(self) -> None:
        pass


class BrokenStore(MemoryStore):
    """Fails, or does not answer, and counts how often it is asked."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.asked = 0
        self._hangs = hangs

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        self.asked += 1
        if self._hangs:
            await asyncio.Event().wait()
        raise StoreUnavailableError("it is away")

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        raise StoreUnavailableError("it is away")


def caching(
    scorer: CountingScorer, store: MemoryStore | None = None, *, slots: int = 10**6
) -> CachingScorer:
    telemetry = Telemetry.on_own_registry()
    return CachingScorer(scorer, store or MemoryStore(), telemetry, seconds=60, slots=slots)


@pytest.mark.parametrize("orders", [1, 2])
async def test_a_repeated_pair_costs_nothing_in_either_order(orders: int) -> None:
    judge = CountingScorer(orders=orders)
    cached = caching(judge)
    for pair in (Comparison.of("q", "long", "a"), Comparison.of("q", "a", "longer")):
        for asked in (pair, pair.swapped):
            direct = CountingScorer(orders=orders)
            assert await cached.score([asked]) == await direct.score([asked])
    assert len(judge.asked) == 2


async def test_an_answer_says_that_its_score_was_kept() -> None:
    cached = caching(CountingScorer())
    pair = Comparison.of("q", "long", "a")
    first, again = await cached.score([pair, pair.swapped])
    (later,) = await cached.score([pair])
    assert [isinstance(score, Score) and score.cached for score in (first, again, later)] == [
        False,
        True,
        True,
    ]


async def test_a_tie_has_no_negative_zero() -> None:
    cached = caching(CountingScorer(orders=1))
    pair = Comparison.of("q", "b", "a")
    for score in await cached.score([pair, pair.swapped]):
        assert isinstance(score, Score)
        assert str(score.gap_fwd) == "0.0"


async def test_errors_are_not_kept() -> None:
    judge = CountingScorer()
    cached = caching(judge)
    pairs = [Comparison.of("q", FAILING, "a"), Comparison.of("q", "b", "a")]
    for _ in range(2):
        failed, score = await cached.score(pairs)
        assert isinstance(failed, JudgmentFailedError)
        assert isinstance(score, Score)
    assert judge.asked == [*pairs, pairs[0]]


@pytest.mark.parametrize(("version", "runtime"), [("2", "vLLM 1"), ("1", "vLLM 2")])
async def test_another_judge_runtime_or_text_has_a_score_of_its_own(
    version: str, runtime: str
) -> None:
    store = MemoryStore()
    first, other = CountingScorer(), CountingScorer(version=version, runtime=runtime)
    pair = Comparison.of("q", "long", "a")
    await caching(first, store).score([pair, Comparison.of("another q", "long", "a")])
    await caching(other, store).score([pair])
    assert (len(first.asked), len(other.asked)) == (2, 1)


async def test_one_slot_keeps_the_newest_pair() -> None:
    judge = CountingScorer()
    cached = caching(judge, slots=1)
    first, second = Comparison.of("q", "long", "a"), Comparison.of("q", "longer", "a")
    for pair in (first, second, second, first):
        assert await cached.score([pair]) == await CountingScorer().score([pair])
    assert judge.asked == [first, second, first]


@pytest.mark.parametrize(
    "change",
    [
        lambda row: "no JSON",
        lambda row: "[" * 100_000,
        lambda row: json.dumps(None),
        lambda row: json.dumps(row[:3]),
        lambda row: json.dumps(["0" * 32, *row[1:]]),
        lambda row: json.dumps([row[0], "1", 1.0, 1.0]),
        lambda row: json.dumps([row[0], float("nan"), 1.0, 1.0]),
        lambda row: json.dumps([row[0], 1.0, float("inf"), 1.0]),
        lambda row: json.dumps([row[0], None, 1.0, 1.0]),
        lambda row: json.dumps([row[0], 1.0, 1.0, 2.0]),
        lambda row: json.dumps([row[0], 10**400, 1.0, 1.0]),
    ],
)
async def test_what_another_program_wrote_is_scored_again(
    change: Callable[[list[object]], str],
) -> None:
    store, judge = MemoryStore(), CountingScorer()
    cached = caching(judge, store)
    pair = Comparison.of("q", "long", "a")
    (score,) = await cached.score([pair])
    slots = range(10**6)
    ((slot, text),) = (await store.kept_scores(slots)).items()
    await store.keep_scores({slot: change(json.loads(text))}, seconds=60)
    assert await cached.score([pair]) == [score]
    assert len(judge.asked) == 2


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_store_that_is_away_is_left_alone_for_a_while(hangs: bool) -> None:
    judge, store = CountingScorer(), BrokenStore(hangs=hangs)
    cached = caching(judge, store)
    pair = Comparison.of("q", "long", "a")
    for _ in range(3):
        assert await cached.score([pair]) == await CountingScorer().score([pair])
    assert len(judge.asked) == 3
    assert store.asked == 1
