"""The reference engine: scores of a plain forward pass, and errors without a judgment."""

import asyncio
import math
from typing import Any

import pytest

from app.core.comparison import Comparison
from app.core.errors import EngineUnavailableError, PromptTooLongError, StartupError
from app.judges.prompts import PromptTemplate
from app.ports import LabelLogits
from app.wiring.engines import DEMO_FOLDER
from tests.transformers_reference import TransformersEngine, TransformersOptions

FOLDER = str(DEMO_FOLDER / "model")
TEMPLATE = PromptTemplate()
PROMPT = TEMPLATE.render(Comparison.of("Is the number 37 even or odd?", "odd", "even"))


async def test_label_logits_are_log_probabilities_over_the_whole_vocabulary() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    engine = TransformersEngine(TransformersOptions(model=FOLDER, judge="demo"))
    identity = await engine.start(PROMPT)
    assert (identity.judge, identity.dtype, identity.max_prompt_tokens) == ("demo", "float32", 2047)
    (found,) = await engine.label_logits([PROMPT])
    assert isinstance(found, LabelLogits)
    ids = engine._renderer.token_ids([PROMPT])[0]
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    with torch.no_grad():
        shares = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    for logit, token in zip(found, identity.label_tokens, strict=True):
        assert math.exp(logit) == pytest.approx(float(shares[token]), rel=1e-5)
    assert 0.9 < found.label_mass <= 1.0
    await engine.stop()


async def test_a_long_prompt_fails_alone_and_a_stopped_judge_judges_nothing() -> None:
    engine = TransformersEngine(TransformersOptions(model=FOLDER, judge="demo", max_model_len=400))
    await engine.start(PROMPT)
    long = TEMPLATE.render(Comparison.of("Q?", "many words " * 200, "few"))
    first, second, third = await engine.label_logits([PROMPT, long, PROMPT])
    assert first == third
    assert isinstance(first, LabelLogits)
    assert isinstance(second, PromptTooLongError)
    await engine.stop()
    await engine.stop()
    with pytest.raises(EngineUnavailableError):
        await engine.label_logits([PROMPT])


async def test_a_folder_without_a_model_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    engine = TransformersEngine(TransformersOptions(model=str(folder), judge="x"))
    with pytest.raises(StartupError, match="no tokenizer that can be loaded"):
        await engine.start(PROMPT)


async def test_a_cancelled_call_releases_the_model_only_after_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = TransformersEngine(TransformersOptions(model=FOLDER, judge="demo"))
    await engine.start(PROMPT)
    running, most = 0, 0
    forward, loop, begun = engine._forward, asyncio.get_running_loop(), asyncio.Event()

    def counted(model: Any, ids: list[int]) -> LabelLogits:
        nonlocal running, most
        running += 1
        most = max(most, running)
        loop.call_soon_threadsafe(begun.set)
        try:
            return forward(model, ids)
        finally:
            running -= 1

    monkeypatch.setattr(engine, "_forward", counted)
    for _ in range(5):
        begun.clear()
        first = asyncio.create_task(engine.label_logits([PROMPT] * 20))
        await begun.wait()
        first.cancel()
        await engine.label_logits([PROMPT])
        with pytest.raises(asyncio.CancelledError):
            await first
    assert most == 1
    await engine.stop()
