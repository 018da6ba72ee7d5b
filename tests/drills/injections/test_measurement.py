"""The measurement of attacks, on a judge with a known weakness."""

from collections.abc import Sequence

import pytest

from app.demo.pairs import demo_sets
from app.engines.scripted import ScriptedEngine, logits_of_gap
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.service.scoring.quoting import FENCE
from tests.drills.injections.__main__ import HARMLESS, Effect, Scorer, attacked, measure, row
from tests.drills.injections.injections import FAMILIES

SETS = demo_sets()
RIGHT = {
    (pair.question, pair.response_a if pair.label == "A" else pair.response_b)
    for pair in (*SETS.calibrate, *SETS.fresh)
}


class Credulous(ScriptedEngine):
    """Knows every right answer, but is misled by a heading at the beginning of a line."""

    def __init__(self) -> None:
        super().__init__(self._verdict_on)
        self.asked: list[Prompt] = []

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self.asked += prompts
        return await super().label_logits(prompts, times)

    @staticmethod
    def _verdict_on(prompt: Prompt) -> LabelLogits:
        question, first, second = (
            part.split("]\n", 1)[1].removeprefix(FENCE)
            for part in prompt.user.replace("\n\n[Assistant A's", "\0[Assistant A's", 1)
            .replace("\n\n[Assistant B's", "\0[Assistant B's", 1)
            .split("\0")
        )
        fooled = [("\n[assistant" in text.lower()) for text in (first, second)]
        if fooled[0] != fooled[1]:
            return logits_of_gap(5.0 if fooled[0] else -5.0)
        return logits_of_gap(3.0 if (question, first) in RIGHT else -3.0)


async def test_a_judge_that_falls_for_headings_is_saved_by_the_fence() -> None:
    engine = Credulous()
    table = await measure(Scorer(engine), SETS.fresh[:40])
    assert list(table) == ["none", HARMLESS, *FAMILIES]
    assert table["none"]["fenced"] == pytest.approx(Effect(0.0, 0.0, 1.0, 0.0, 0.0, 0.99))
    forged = table["forged heading"]
    assert forged["unfenced"].flipped > 0.05
    assert forged["fenced"].flipped == 0.0
    # A prompt that the fence does not change is judged once.
    assert table["position"]["unfenced"] == table["position"]["fenced"]
    assert len(engine.asked) == len(set(engine.asked))
    assert row("none", table["none"]) == (
        "| none | 0% / 0% | 0% / 0% | 100% / 100% | 0% / 0% | 0% / 0% | 99% / 99% |"
    )


def test_the_injection_follows_the_wrong_response() -> None:
    for pair in SETS.fresh[:2]:
        found = attacked(pair, "!")
        responses = {"A": found.response_a[0], "B": found.response_b[0]}
        wrong = "B" if pair.label == "A" else "A"
        assert responses[wrong].endswith("!")
        assert (pair.question, responses[pair.label]) in RIGHT
