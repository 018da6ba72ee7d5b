"""A real language model judges long real texts; the tests need its wheel from the package index."""

import gc
import re
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from app.core.comparison import Comparison
from app.engines.transformers_reference import TransformersEngine, TransformersOptions
from app.engines.vllm_local import VllmEngine
from app.engines.vllm_start import VllmOptions
from app.ports import Generated, LabelLogits, Prompt
from app.service.scoring.label_logits import label_gap
from app.service.scoring.prompts import PromptTemplate
from tests.benchmarks.texts import has_real_texts, real_pairs

pytestmark = [
    pytest.mark.vllm,
    # test_vllm_agreement.py has the demo judge.
    pytest.mark.long,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

TEMPLATE = PromptTemplate()
COMPARISONS = 6
PAGES = Path(__file__).parents[3] / "docs"


def comparisons() -> list[Comparison]:
    """Long pairs of data sets that are not in this repository, else paragraphs of our pages."""
    if has_real_texts():
        longest = sorted(real_pairs(), key=lambda pair: sum(map(len, pair)))
        # The longest ones take seconds each.
        return [pair.comparison for pair in longest[len(longest) // 2 :: 40][:COMPARISONS]]
    page = (PAGES / "concepts" / "guarantees.md").read_text(encoding="utf-8")
    texts = [text for text in re.split(r"\n\n+", page) if len(text) > 300]
    starts = range(0, 3 * COMPARISONS, 3)
    return [Comparison.of(*(texts[(i + j) % len(texts)] for j in range(3))) for i in starts]


def prompts() -> list[Prompt]:
    return [prompt for one in comparisons() for prompt in TEMPLATE.both_orders(one)]


@pytest.fixture(scope="module")
async def engine(real_checkpoint: Path) -> AsyncIterator[VllmEngine]:
    vllm = VllmEngine(VllmOptions(model=str(real_checkpoint), judge="smollm2"))
    await vllm.start(prompts()[0])
    yield vllm
    await vllm.stop()
    gc.collect()


async def test_vllm_scores_long_texts_as_a_float32_forward_pass_does(
    engine: VllmEngine, real_checkpoint: Path
) -> None:
    reference = TransformersEngine(TransformersOptions(model=str(real_checkpoint), judge="smollm2"))
    asked = prompts()
    await reference.start(asked[0])
    expected = [label_gap(logits) for logits in await reference.label_logits(asked)]
    await reference.stop()
    served = [label_gap(logits) for logits in await engine.label_logits(asked)]
    residual = np.array(served, dtype=float) - np.array(expected, dtype=float)
    print(f"gaps differ by at most {np.abs(residual).max():.1e}, on average {residual.mean():.1e}")
    assert np.abs(residual).max() <= 1e-3
    # The judge distinguishes the comparisons.
    assert np.std(np.array(expected, dtype=float)) > 0.05


async def test_the_label_mass_shows_that_the_judge_does_not_answer_the_question(
    engine: VllmEngine,
) -> None:
    found = await engine.label_logits(prompts()[:4])
    assert all(isinstance(each, LabelLogits) and 0.0 < each.label_mass < 0.5 for each in found)


async def test_its_answers_are_sentences_that_repeat(engine: VllmEngine) -> None:
    asked = prompts()[:4]
    first, again = [
        await engine.generate(asked, max_tokens=12, temperature=0.0, seeds=seeds)
        for seeds in (range(4), range(10, 14))
    ]
    assert first == again
    texts = [answer.text for answer in first if isinstance(answer, Generated)]
    assert len(texts) == len(asked)
    assert all(len(text.split()) >= 3 for text in texts)
    assert not any("<|" in text for text in texts)
