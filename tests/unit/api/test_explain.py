"""`explain`: a text beside a judgment, which changes nothing of it."""

import httpx
import pytest

from app.judges.engines.scripted import ScriptedEngine
from app.main import build
from app.ports import Generated, Prompt, PromptError
from app.settings import Settings
from app.wiring.services import open_services
from tests.serving import client_of, client_of_scorer
from tests.unit.judges.test_another_kind import LengthScorer
from tests.unit.kinds.scenes import Quiet

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
        batch = {"comparisons": [PAIR, {**PAIR, "explain": True}]}
        first, second = (await client.post("/judge/batch", json=batch)).json()["results"]
        assert first["verdict"] == "B"
        assert second["error"]["code"] == "invalid_comparison"
        assert "POST /judge" in second["error"]["detail"]


@pytest.mark.parametrize("tokens", [100, 1])
async def test_the_explanation_of_a_thinking_judge_is_its_thought(tokens: int) -> None:
    settings = Settings(
        engine="scripted", scoring="thoughts", think_tokens=tokens, store_url="memory://"
    )
    app = build(settings, lambda: open_services(settings, Quiet(), on_lost=print), keys=None)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        found = (await client.post("/judge", json={**PAIR, "explain": True})).json()
        assert set(found["explanation"].split()) == {"hmm"}
        assert (found["reason"] == "thought_unfinished") == (tokens == 1)


async def test_a_judge_that_writes_no_text_refuses() -> None:
    async with client_of_scorer(LengthScorer()) as client:
        refused = await client.post("/judge", json={**PAIR, "explain": True})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_comparison")
    assert "leave `explain` out" in refused.json()["detail"]
