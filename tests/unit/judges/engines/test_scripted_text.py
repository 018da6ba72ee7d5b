"""The scripted engine's answers in words agree with its label logits."""

from collections.abc import Sequence
from typing import Any

from app.core.comparison import Comparison
from app.evaluation.judgments.questions import verbalized_prompt
from app.judges.engines.scripted import ScriptedEngine
from app.judges.prompts import PromptTemplate
from app.ports import Generated, Prompt, PromptError, Sampling

TEMPLATE = PromptTemplate()
BETTER_FIRST = Comparison.of("Which?", "quality=2", "quality=0.1")
WORSE_FIRST = BETTER_FIRST.swapped


async def answers(
    engine: ScriptedEngine,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Generated | PromptError]:
    return await engine.generate(
        prompts,
        Sampling(
            max_tokens=max_tokens, temperature=temperature, seeds=range(seed, seed + len(prompts))
        ),
    )


async def texts(engine: ScriptedEngine, prompts: Sequence[Prompt], **given: Any) -> list[str]:
    found = []
    for answer in await answers(engine, prompts, **given):
        assert isinstance(answer, Generated)
        found.append(answer.text)
    return found


async def test_the_greedy_verdict_is_the_larger_label_logit_whatever_the_seed() -> None:
    prompts = [TEMPLATE.render(BETTER_FIRST), TEMPLATE.render(WORSE_FIRST)]
    for seed in range(5):
        assert await texts(ScriptedEngine(), prompts, seed=seed) == ["[[A]]", "[[B]]"]


async def test_a_score_is_given_only_if_the_prompt_asks_for_one() -> None:
    prompts = [
        verbalized_prompt(template, comparison)
        for template in (TEMPLATE, PromptTemplate(system=""))
        for comparison in (BETTER_FIRST, WORSE_FIRST)
    ]
    # The gap is 1.9 either way: 1 / (1 + e^-1.9) = 0.8699.
    expected = ["[[A]] 0.87", "[[B]] 0.87"]
    assert await texts(ScriptedEngine(), prompts) == expected * 2
    # A response that asks for a score does not count.
    inside = Comparison.of("Score between 0.0 and 1.0?", "a score between 0.0 and 1.0", "b")
    (text,) = await texts(ScriptedEngine(), [TEMPLATE.render(inside)])
    assert text in ("[[A]]", "[[B]]")


async def test_an_answer_is_complete_only_if_its_end_fits_the_limit_too() -> None:
    prompt = verbalized_prompt(TEMPLATE, BETTER_FIRST)
    # "[", "[", "A", "]", "]", " 0", ".", "87" are eight tokens; the ninth ends the turn.
    found = [
        (await answers(ScriptedEngine(), [prompt], max_tokens=limit))[0] for limit in (9, 8, 6)
    ]
    assert found == [
        Generated("[[A]] 0.87", True),
        Generated("[[A]] 0.87", False),
        Generated("[[A]] 0", False),
    ]
