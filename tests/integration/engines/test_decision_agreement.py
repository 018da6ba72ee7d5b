"""vLLM's own /v1/systemone as a judge agrees with the label logits of the same prompt."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from app.core.comparison import Comparison
from app.core.errors import PromptTooLongError
from app.core.preference import FloatArray, Score
from app.demo.pairs import Pair, demo_sets
from app.judges.decision_servers import DecisionScorer
from app.judges.engines.decision_dialects import INSTRUCTIONS, OPTIONS
from app.judges.engines.openai_servers import Endpoints
from app.judges.prompts import PromptTemplate
from app.judges.scorer import ScoreError
from app.observability.telemetry import Telemetry
from tests.integration.engines.vllm_server import FOLDER, KEY, MODEL
from tests.transformers_reference import Reference

pytestmark = pytest.mark.vllm

COMPARISONS = 200
# The prompt that vLLM 0.32.0 makes of a choice.
VLLMS = PromptTemplate(
    system="",
    user=(
        "[User Question]\n{question}\n\n"
        f"Question: {INSTRUCTIONS}\n"
        f"A: {OPTIONS[0]} - {{answer_a}}\n"
        f"B: {OPTIONS[1]} - {{answer_b}}\n"
        "Answer with the letter of one option only."
    ),
)


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return list(itertools.islice(demo_sets().fresh, COMPARISONS))


@asynccontextmanager
async def judge_at(url: str) -> AsyncIterator[DecisionScorer]:
    scorer = DecisionScorer(
        Endpoints(urls=(url,), api_key=KEY),
        model=MODEL,
        judge="demo",
        max_prompt_tokens=2**31,
        telemetry=Telemetry.on_own_registry(),
    )
    try:
        await scorer.start()
        yield scorer
    finally:
        await scorer.stop()


def comparisons_of(pairs: Sequence[Pair]) -> list[Comparison]:
    return [Comparison.of(pair.question, pair.response_a, pair.response_b) for pair in pairs]


def by_transformers(pairs: Sequence[Pair]) -> FloatArray:
    """Gaps and label mass by a float32 forward pass."""
    prompts = [each for pair in comparisons_of(pairs) for each in VLLMS.both_orders(pair)]
    found = Reference(FOLDER, prompts[0])(prompts)
    return np.array(
        [
            (one.a - one.b, other.b - other.a, min(one.label_mass, other.label_mass))
            for one, other in zip(found[::2], found[1::2], strict=True)
        ]
    )


def table(found: Sequence[Score | ScoreError]) -> FloatArray:
    assert all(isinstance(one, Score) for one in found), found
    return np.array(
        [(one.gap_fwd, one.gap_rev, one.label_mass) for one in found if isinstance(one, Score)],
        dtype=np.float64,
    )


async def test_log_odds_equal_the_gaps_of_label_logits_with_the_same_prompt(
    server_url: str, pairs: list[Pair]
) -> None:
    expected = by_transformers(pairs)
    async with judge_at(server_url) as judge:
        assert judge.identity.described["decision_server"] == {
            "hosts": ["127.0.0.1"],
            "answered_as": MODEL,
            "dialect": "systemone",
            "questions_together": 2,
            "decimals": None,
        }
        served = table(await judge.score(comparisons_of(pairs)))
    residual = served - expected
    worst, mean, largest = np.abs(residual).max(axis=0), residual.mean(axis=0), np.abs(expected)
    print(f"differ by at most {worst}, on average {mean}; largest {largest.max(axis=0)}")
    assert worst.max() <= 1e-3
    assert np.abs(mean).max() <= 5e-5
    # The judge distinguishes the comparisons.
    assert expected[:, 0].std() > 0.1


async def test_a_prompt_that_is_too_long_fails_alone(server_url: str, pairs: list[Pair]) -> None:
    comparisons = comparisons_of(pairs[:2])
    long = Comparison.of("Which?", "x" * 20_000, "y")
    async with judge_at(server_url) as judge:
        alone = await judge.score(comparisons)
        first, error, second = await judge.score([comparisons[0], long, comparisons[1]])
    assert isinstance(error, PromptTooLongError)
    np.testing.assert_allclose(table([first, second]), table(alone), atol=1e-5)
