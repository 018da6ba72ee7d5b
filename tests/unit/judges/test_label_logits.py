"""The chat model's scorer: its identity, and what it says when its labels are unlikely."""

import dataclasses
import math

import pytest

from app.core.comparison import Comparison
from app.core.preference import Score
from app.judges.engines.scripted import ScriptedEngine
from app.judges.label_logits import LabelLogitScorer, chat_identity
from app.judges.prompts import PromptTemplate
from app.observability.telemetry import Telemetry
from app.ports import EngineIdentity, LabelLogits, Prompt
from tests.serving import label_scorer

ENGINE = EngineIdentity(
    judge="Qwen/Qwen2.5-7B-Instruct",
    weights="a09a35458c702b33eeacc393d103063234e8bc28",
    chat_frame="<|im_start|>user\n|<|im_end|>\n",
    label_tokens=(32, 33),
    dtype="bfloat16",
    max_prompt_tokens=32_768,
)
TEMPLATE = PromptTemplate(
    system="Sys \u2713", user="{question} {answer_a} {answer_b}", prefill="[["
)


def test_the_fingerprint_of_a_chat_judge_is_that_of_release_0_1_0() -> None:
    # Computed by release 0.1.0. A change makes every stored calibration refuse its own judge.
    identity = chat_identity(ENGINE, TEMPLATE)
    assert identity.fingerprint == (
        "8784d7a6b267a36a1adffe6942b92d08a95f4036d5c9ab29a5e01e973d28f536"
    )
    assert identity.described["template"] == (
        "163397e04d4b019296cd0f690c53122794e2efdb2839450e1aedbe88709abd4b"
    )


async def test_the_fingerprint_of_the_scripted_judge_is_that_of_release_0_1_0() -> None:
    assert (await label_scorer()).identity.fingerprint == (
        "e623ec015b18cae0d39c0f5aa08b65aa680f2c03009b6644824574ae9dad1a26"
    )


@pytest.mark.parametrize(
    ("prefill", "advice"), [("[[", "without the prefill '[['"), ("", 'SCOPE_PREFILL="[["')]
)
def test_a_judge_that_rarely_answers_with_a_label_gets_advice(prefill: str, advice: str) -> None:
    template = PromptTemplate(prefill=prefill)
    scorer = LabelLogitScorer(
        engine=ScriptedEngine(),
        template=template,
        telemetry=Telemetry.on_own_registry(),
    )
    assert scorer.weakness(Score(gap_fwd=1.0, gap_rev=1.0, label_mass=0.5)) is None
    weakness = scorer.weakness(Score(gap_fwd=1.0, gap_rev=1.0, label_mass=0.001))
    assert weakness is not None
    assert "only 1.0e-03" in weakness
    assert weakness.endswith(f"try {advice}")


class Prefilled(ScriptedEngine):
    """A judge that answers with a label with one probability, and after "[[" with another."""

    def __init__(self, mass: float, mass_after: float) -> None:
        super().__init__(self._labels, judge="prefilled")
        self.prefill = ""
        self._masses = {"": mass, "[[": mass_after}

    def _labels(self, prompt: Prompt) -> LabelLogits:
        # An engine with the labels of another prefill reads the wrong tokens.
        assert prompt.prefill == self.prefill
        return LabelLogits(*[math.log(self._masses[prompt.prefill] / 2)] * 2)

    async def use_prompt(self, prompt: Prompt) -> EngineIdentity:
        self.prefill = prompt.prefill
        return dataclasses.replace(await self.start(prompt), label_tokens=(2, 3))


@pytest.mark.parametrize(
    ("mass", "mass_after", "given", "prefill"),
    [
        (0.6, 0.9, "", ""),
        (0.1, 0.9, "", "[["),
        (0.1, 0.4, "", ""),
        (0.1, 0.9, "[[", "[["),
    ],
    ids=["answers with a label", "answers with [[", "answers with neither", "has a prefill"],
)
async def test_a_judge_that_answers_with_brackets_gets_them_as_prefill(
    mass: float, mass_after: float, given: str, prefill: str
) -> None:
    engine = Prefilled(mass, mass_after)
    engine.prefill = given
    template, telemetry = PromptTemplate(prefill=given), Telemetry.on_own_registry()
    scorer = LabelLogitScorer(engine=engine, template=template, telemetry=telemetry)
    before, changed = (await scorer.start()).identity.fingerprint, prefill != given
    assert await scorer.find_prefill([Comparison.of("q", "a", "b")]) == changed
    assert (scorer.template.prefill, engine.prefill) == (prefill, prefill)
    assert scorer.identity.described["prefill"] == prefill
    assert (scorer.identity.fingerprint != before) == changed
    # It scores, and the engine has its labels.
    assert isinstance((await scorer.score([Comparison.of("q", "a", "b")]))[0], Score)
