"""Answers in words from real vLLM agree with the label log-probabilities of the engine."""

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from app.core.comparison import Comparison
from app.core.errors import EngineUnavailableError, PromptTooLongError
from app.demo.pairs import demo_sets
from app.judges.engines.rendering import PromptRenderer, load_tokenizer
from app.judges.engines.vllm_local import VllmEngine
from app.judges.prompts import PromptTemplate
from app.ports import CallTimes, Generated, LabelLogits, Prompt, Sampling
from app.settings import DEMO_FOLDER, Settings
from tests.transformers_reference import Reference

pytestmark = [
    pytest.mark.vllm,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

TEMPLATE = PromptTemplate()
# Tokens of an answer: room for "[[A]]" and the end of the turn.
TOKENS = 8


@pytest.fixture(scope="module")
async def engine() -> AsyncIterator[VllmEngine]:
    """An engine without the service, because no route asks for an answer in words."""
    vllm = VllmEngine(Settings())
    stages: list[str] = []
    await vllm.start(prompt_of(Comparison.of("x", "x", "x")), stages.append)
    assert (stages[0], stages[-1]) == ("importing vLLM", "judging a first prompt")
    yield vllm
    await vllm.stop()
    gc.collect()


def prompt_of(comparison: Comparison, *, prefill: str = "") -> Prompt:
    return TEMPLATE.render(comparison)._replace(prefill=prefill)


def demo_prompts(n: int) -> list[Prompt]:
    pairs = itertools.islice(demo_sets().fresh, n)
    return [prompt_of(Comparison.of(p.question, p.response_a, p.response_b)) for p in pairs]


async def texts(
    engine: VllmEngine,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int = TOKENS,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[str]:
    answers = await engine.generate(
        prompts,
        Sampling(
            max_tokens=max_tokens, temperature=temperature, seeds=range(seed, seed + len(prompts))
        ),
    )
    found = []
    for answer in answers:
        assert isinstance(answer, Generated)
        found.append(answer.text)
    return found


async def gaps(engine: VllmEngine, prompts: Sequence[Prompt]) -> list[float]:
    found = []
    for logits in await engine.label_logits(prompts):
        assert isinstance(logits, LabelLogits)
        found.append(logits.a - logits.b)
    return found


async def test_greedy_answers_repeat_whatever_the_seed_and_begin_with_the_larger_label(
    engine: VllmEngine,
) -> None:
    prompts = demo_prompts(100)
    first = await texts(engine, prompts)
    assert await texts(engine, prompts, seed=1000) == first
    # A smaller gap could change its sign by rounding in a batch of another size.
    clear = [i for i, gap in enumerate(await gaps(engine, prompts)) if abs(gap) > 1e-3]
    assert len(clear) > 90
    labels = ["A" if gap > 0 else "B" for gap in await gaps(engine, prompts)]
    assert [first[i][0] for i in clear] == [labels[i] for i in clear]
    assert {first[i][0] for i in clear} == {"A", "B"}
    # No text contains the end of the turn or another control token.
    assert not any("<|" in text for text in first)


async def test_the_engine_takes_another_prompt_and_its_labels(engine: VllmEngine) -> None:
    plain = demo_prompts(8)
    before = await gaps(engine, plain)
    begun = [prompt._replace(prefill="[[") for prompt in plain]
    reference = Reference(str(DEMO_FOLDER / "model"), begun[0])
    try:
        identity = await engine.use_prompt(begun[0])
        assert identity.label_tokens == (reference.labels.a, reference.labels.b)
        found = await engine.label_logits(begun)
        for one, other in zip(found, reference(begun), strict=True):
            assert isinstance(one, LabelLogits)
            assert one == pytest.approx(other, abs=1e-3)
    finally:
        await engine.use_prompt(plain[0])
    assert await gaps(engine, plain) == pytest.approx(before, abs=1e-3)


async def test_an_answer_is_complete_only_if_the_judge_ends_its_turn(
    engine: VllmEngine,
) -> None:
    prompts = demo_prompts(40)
    counts = {}
    for limit in (1, TOKENS):
        times = CallTimes()
        answers = await engine.generate(
            prompts,
            Sampling(max_tokens=limit, temperature=0.0, seeds=range(len(prompts))),
            times=times,
        )
        assert len(prompts) <= times.written_tokens <= limit * len(prompts)
        assert all(isinstance(answer, Generated) for answer in answers)
        counts[limit] = sum(isinstance(a, Generated) and a.complete for a in answers)
    # One token is the label; the end of the turn would have been the second.
    assert counts[1] == 0
    assert 0 < counts[TOKENS] < len(prompts)


async def test_sampled_answers_repeat_with_their_seeds_and_follow_the_label_logits(
    engine: VllmEngine,
) -> None:
    prompts = demo_prompts(200)
    its_gap, prompt = min(
        zip(await gaps(engine, prompts), prompts, strict=True), key=lambda both: abs(both[0] - 0.5)
    )
    assert 0.2 < its_gap < 0.8
    n, temperature = 400, 0.7
    drawn = await texts(engine, [prompt] * n, temperature=temperature)
    assert await texts(engine, [prompt] * n, temperature=temperature) == drawn
    assert len(set(drawn[:20])) > 1
    share = float(np.mean([text.startswith("A") for text in drawn]))
    expected = 1.0 / (1.0 + np.exp(-its_gap / temperature))
    print(f"{share:.3f} of {n} sampled answers begin with A, the label logits say {expected:.3f}")
    assert abs(share - expected) < 4.0 * np.sqrt(expected * (1.0 - expected) / n)


async def test_answers_in_words_do_not_change_concurrent_label_logits(
    engine: VllmEngine,
) -> None:
    prompts = demo_prompts(60)
    alone, words = await gaps(engine, prompts), await texts(engine, prompts)
    async with asyncio.TaskGroup() as group:
        written = group.create_task(texts(engine, prompts))
        drawn = group.create_task(texts(engine, prompts, temperature=0.7))
        scored = group.create_task(gaps(engine, prompts))
    residual = np.array(scored.result()) - np.array(alone)
    print(f"gaps differ by at most {np.abs(residual).max():.1e}, on average {residual.mean():.1e}")
    assert np.abs(residual).max() <= 1e-5
    assert np.std(alone) > 0.5
    assert written.result() == words
    assert len(drawn.result()) == len(prompts)


async def test_a_prompt_without_room_for_its_answer_fails_alone(
    engine: VllmEngine,
) -> None:
    context = 2048
    renderer = PromptRenderer(load_tokenizer(str(DEMO_FOLDER / "model")), max_prompt_tokens=context)

    def of_length(n: int) -> Prompt:
        for words in range(n):
            prompt = prompt_of(Comparison.of("1" * words + "x", "x", "y"))
            (ids,) = renderer.token_ids([prompt])
            assert isinstance(ids, list)
            if len(ids) == n:
                return prompt
        raise AssertionError("no prompt has so many tokens")

    (short,) = demo_prompts(1)
    (just_too_long,) = [of_length(context - TOKENS + 1)]
    prompts = [short, just_too_long, prompt_of(Comparison.of("x " * 5000, "x", "y")), short]
    before, no_room, far_too_long, after = await engine.generate(
        prompts, Sampling(max_tokens=TOKENS, temperature=0.0, seeds=[0] * 4)
    )
    assert isinstance(no_room, PromptTooLongError)
    assert isinstance(far_too_long, PromptTooLongError)
    assert isinstance(before, Generated)
    assert before == after
    # The same prompt leaves room for a shorter answer and for a label.
    assert len(await texts(engine, [just_too_long], max_tokens=TOKENS - 1)) == 1
    assert len(await gaps(engine, [just_too_long])) == 1


async def test_an_engine_that_is_not_running_answers_nothing() -> None:
    vllm = VllmEngine(Settings())
    with pytest.raises(EngineUnavailableError):
        await vllm.generate(demo_prompts(1), Sampling(max_tokens=1, temperature=0.0, seeds=[0]))
