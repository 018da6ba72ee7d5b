"""A service whose judge is a decision server: what /info says, and servers that change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.core.errors import StartupError
from app.settings import Settings
from tests.serving import client_of_settings
from tests.unit.judges.engines.decisions_fake import FakeDecisions
from tests.unit.judges.engines.openai_fake import serving


def settings_of(server: FakeDecisions, **given: Any) -> Settings:
    fixed = {"engine": "decisions", "model": "the-judge", "store_url": "memory://"}
    return Settings(**{**fixed, "openai_urls": server.url, "audit_rate": 1.0, **given})


@asynccontextmanager
async def service_of(server: FakeDecisions) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(server), client_of_settings(settings_of(server)) as client:
        yield client


def pair(number: int) -> dict[str, Any]:
    return {
        "question": f"Question {number}?",
        "response_a": f"a{number}",
        "response_b": f"b{number}",
    }


async def test_info_says_how_the_server_answers() -> None:
    async with service_of(FakeDecisions()) as service:
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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"prefill": "[["}, "SCOPE_PREFILL has no effect, because decision servers"),
        ({"prompt_file": "judge.toml"}, "SCOPE_PROMPT_FILE has no effect"),
        ({"revision": "main"}, "SCOPE_REVISION has no effect with SCOPE_ENGINE=decisions"),
        ({"openai_urls": ""}, "SCOPE_OPENAI_URLS is empty"),
        ({"openai_urls": "host:1"}, "is not a URL such as"),
    ],
)
async def test_settings_that_decision_servers_do_not_take_are_refused(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartupError, match=says):
        async with client_of_settings(settings_of(FakeDecisions(port=1), **given)):
            pass
