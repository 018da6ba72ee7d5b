"""A service whose judge is a decision server: what the start says, and servers that change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.core.errors import StartupError
from app.main import build
from app.settings import Settings
from app.wiring.engines import make_decision_servers
from app.wiring.services import open_services
from tests.unit.judges.engines.decisions_fake import FakeDecisions
from tests.unit.judges.engines.openai_fake import serving


class Notes:
    """Keeps what a start says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        self.said.append(text)

    def calibrated(self, done: int, total: int) -> None: ...


def settings_of(server: FakeDecisions, **given: Any) -> Settings:
    fixed = {"engine": "decisions", "model": "the-judge", "store_url": "memory://"}
    return Settings(**{**fixed, "openai_urls": server.url, "audit_rate": 1.0, **given})


@asynccontextmanager
async def service_of(
    server: FakeDecisions, notes: Notes | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(server):
        settings, observer = settings_of(server), notes or Notes()
        app = build(
            settings,
            lambda: open_services(settings, observer, on_lost=lambda why: None),
            keys=None,
        )
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield client


def pair(number: int) -> dict[str, Any]:
    return {
        "question": f"Question {number}?",
        "response_a": f"a{number}",
        "response_b": f"b{number}",
    }


async def test_the_start_and_info_say_how_the_server_answers() -> None:
    notes = Notes()
    async with service_of(FakeDecisions(), notes) as service:
        assert "answers as 'the-judge-1.0.0'" in " ".join(notes.said)
        info = (await service.get("/info")).json()
        assert (info["judge"], info["model"]) == ("the-judge", "the-judge")
        assert info["decision_server"] == {
            "hosts": ["127.0.0.1"],
            "answered_as": "the-judge-1.0.0",
            "dialect": "systemone",
            "questions_together": 2,
            "decimals": None,
        }
        assert [info[field] for field in ("dtype", "label_tokens", "prefill")] == [None] * 3


async def test_a_server_without_label_mass_has_null_in_its_answers() -> None:
    server = FakeDecisions(path="/decisions", shape="openai", decimals=2)
    async with service_of(server) as service:
        judged = (await service.post("/judge", json={**pair(0), "alpha": None})).json()
        assert judged["label_mass"] is None
        assert (await service.get("/info")).json()["decision_server"]["decimals"] == 2
        examples = [{**pair(i), "label": "A"} for i in range(3)]
        answer = await service.post("/calibrate", json={"examples": examples})
        assert (answer.status_code, answer.json()["added"]) == (200, 3)


async def test_a_probability_of_0_or_1_is_bounded_and_marked() -> None:
    def certain(answer: dict[str, Any]) -> dict[str, Any]:
        for one in answer["answers"]:
            likelier = one["choice"] if "b0" in str(server.asked[-1]) else None
            for option in one["probabilities"] if likelier else ():
                option["probability"] = float(option["value"] == likelier)
        return answer

    server = FakeDecisions(path="/decisions", shape="openai", decimals=2)
    async with service_of(server) as service:
        server.change = certain
        sure = (await service.post("/judge", json={**pair(0), "alpha": None})).json()
        other = (await service.post("/judge", json={**pair(1), "alpha": None})).json()
    assert (sure["bounded"], other["bounded"]) == (True, False)
    for order in ("p_fwd", "p_rev"):
        assert max(sure[order], 1 - sure[order]) == pytest.approx(0.995)


async def test_another_version_of_the_model_is_503_and_never_a_verdict() -> None:
    server = FakeDecisions()
    async with service_of(server) as service:
        server.version = "the-judge-2.0.0"
        for _ in range(2):
            answer = await service.post("/judge", json={**pair(0), "alpha": None})
            assert (answer.status_code, answer.json()["code"]) == (503, "engine_unavailable")
            assert "answers as 'the-judge-2.0.0'" in answer.json()["detail"]
            assert "verdict" not in answer.json()
        ready = await service.get("/readyz")
        assert (ready.status_code, "the-judge-2.0.0" in ready.text) == (503, True)


async def test_a_wrong_answer_fails_alone_in_a_batch() -> None:
    def without_answers(answer: dict[str, Any]) -> dict[str, Any]:
        asked = str(server.asked[-1])
        return {**answer, "answers": {}} if "Question 1?" in asked else answer

    server = FakeDecisions()
    async with service_of(server) as service:
        server.change = without_answers
        batch = {"comparisons": [pair(i) for i in range(3)], "alpha": None}
        results = (await service.post("/judge/batch", json=batch)).json()["results"]
    failed = [result for result in results if "error" in result]
    assert [result["error"]["code"] for result in failed] == ["judgment_failed"] * len(failed)
    assert 1 <= len(failed) < 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"prefill": "[["}, "SCOPE_PREFILL has no effect with SCOPE_ENGINE=decisions"),
        ({"prompt_file": "judge.toml"}, "SCOPE_PROMPT_FILE has no effect"),
        ({"revision": "main"}, "SCOPE_REVISION has no effect with SCOPE_ENGINE=decisions"),
        ({"openai_urls": ""}, "SCOPE_OPENAI_URLS is empty"),
        ({"openai_urls": "host:1"}, "is not a base URL"),
    ],
)
def test_settings_that_decision_servers_do_not_take_are_refused(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartupError, match=says):
        make_decision_servers(settings_of(FakeDecisions(port=1), **given))
