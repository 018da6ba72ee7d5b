"""`explain`: a text beside a judgment, which changes nothing of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.errors import EngineUnavailableError, JudgmentFailedError, RateLimitedError
from app.judges.engines.scripted import ScriptedEngine
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.judges.thoughts import ThoughtScorer
from app.observability.telemetry import Telemetry
from app.ports import Generated, Prompt, PromptError
from tests.serving import client_of, client_of_scorer
from tests.unit.judges import number_model
from tests.unit.judges.test_thoughts import OPTIONS

PAIR = {"question": "Which?", "response_a": "quality=1", "response_b": "quality=3", "alpha": None}


def explaining(prompt: Prompt, temperature: float, seed: int) -> Generated | PromptError:
    """Repeats the last line of its prompt."""
    return Generated(prompt.user.rpartition("\n")[2], complete=True)


async def test_a_judge_explains_the_side_that_it_prefers() -> None:
    async with client_of(ScriptedEngine(writer=explaining)) as client:
        plain = (await client.post("/judge", json=PAIR)).json()
        found = (await client.post("/judge", json={**PAIR, "explain": True})).json()
        assert found["explanation"].startswith("Your verdict is [[B]].")
        assert (plain["explanation"], plain["p_bar"]) == (None, found["p_bar"])
        assert found["usage"]["engine_prompts"] == 3
        even = {**PAIR, "response_a": "quality=3 or so", "explain": True}
        found = (await client.post("/judge", json=even)).json()
        assert (found["reason"], found["explanation"]) == ("no_preference", None)
        swapped = {**PAIR, "response_a": "quality=4", "explain": True}
        batch = {"comparisons": [PAIR, swapped, even, {**PAIR, "question": " "}]}
        answer = (await client.post("/judge/batch", json=batch)).json()
        first, second, third, failed = answer["results"]
        assert second["explanation"].startswith("Your verdict is [[A]].")
        assert (first["explanation"], third["explanation"]) == (None, None)
        assert failed["error"]["code"] == "invalid_comparison"
        assert answer["usage"]["engine_prompts"] == 7


async def started(
    kind: Any,
    engine: ScriptedEngine | None = None,
    **changed: Any,
) -> Any:
    options = {**OPTIONS, **changed} if kind is ThoughtScorer else {"template": PromptTemplate()}
    telemetry = Telemetry.on_own_registry()
    return await kind(engine=engine or ScriptedEngine(), telemetry=telemetry, **options).start()


class Forgetful(ScriptedEngine):
    """Judges, and fails to explain: with an error, or with too few texts."""

    error: Exception | None = None

    async def generate(self, prompts: Sequence[Prompt], *_: Any, **__: Any) -> list[Any]:
        if self.error is not None:
            raise self.error
        return []

    async def think(self, prompts: Sequence[Prompt], *given: Any) -> list[Any]:
        # Only explanations and the first measurement of the speed have an odd number of prompts.
        if len(prompts) % 2 == 0:
            return await super().think(prompts, *given)
        return await self.generate(prompts)


@pytest.mark.parametrize("kind", [LabelLogitScorer, ThoughtScorer])
@pytest.mark.parametrize(
    "error",
    [None, RateLimitedError("quota"), EngineUnavailableError("gone"), JudgmentFailedError("odd")],
)
async def test_a_judgment_stands_without_its_explanation(
    kind: Any, error: Exception | None
) -> None:
    engine = Forgetful()
    scorer = await started(kind, engine)
    engine.error = error
    async with client_of_scorer(scorer) as client:
        found = await client.post("/judge", json={**PAIR, "explain": True})
        assert (found.json()["verdict"], found.json()["explanation"]) == ("B", None)
        batch = {"comparisons": [PAIR] * 3, "explain": True}
        rows = (await client.post("/judge/batch", json=batch)).json()["results"]
        assert [(row["verdict"], row["explanation"]) for row in rows] == [("B", None)] * 3


@pytest.mark.parametrize("size", [16, 17])
async def test_a_batch_of_at_most_16_pairs_is_explained(size: int) -> None:
    async with client_of(ScriptedEngine(writer=explaining)) as client:
        batch = {"comparisons": [PAIR] * size, "explain": True}
        answer = await client.post("/judge/batch", json=batch)
        found = answer.json()
    if size == 16:
        assert all(r["explanation"].startswith("Your verdict is [[B]].") for r in found["results"])
    else:
        assert (answer.status_code, found["code"]) == (422, "invalid_comparison")
        assert "at most 16 comparisons, and this one has 17" in found["detail"]


@pytest.mark.parametrize("tokens", [100, 1])
async def test_the_explanation_of_a_thinking_judge_is_its_thought(tokens: int) -> None:
    async with client_of_scorer(await started(ThoughtScorer, max_tokens=tokens)) as client:
        found = (await client.post("/judge", json={**PAIR, "explain": True})).json()
        assert set(found["explanation"].split()) == {"hmm"}
        assert (found["reason"] == "thought_unfinished") == (tokens == 1)


async def test_a_judge_that_writes_no_text_refuses() -> None:
    async with client_of_scorer(await number_model.scorer_of(number_model.NumberModel())) as client:
        for path, body in (("", PAIR), ("/batch", {"comparisons": [PAIR]})):
            refused = await client.post(f"/judge{path}", json={**body, "explain": True})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_comparison")
            assert "leave `explain` out" in refused.json()["detail"]
