"""Trainers' own HTTP client, aiohttp, asks a service with keys and reads what their code reads."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.unit.api.keyring import entry, key_of, write_keys
from tests.unit.api.rewards.reward_routes import FLAGS, PROMPT

aiohttp = pytest.importorskip("aiohttp")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("trainers")
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_API_KEYS_FILE": str(write_keys(folder / "keys.json", entry("trainer"))),
        # Far fewer places than there are samples at once.
        "SCOPE_MAX_PENDING": "4",
    }
    with Server(folder, settings) as server:
        yield server


def url(server: Server, path: str, key: str) -> str:
    return f"http://x:{key}@127.0.0.1:{server.port}{path}?alpha=null"


async def posted(address: str, body: dict[str, Any]) -> Any:
    """The answer, as OpenRLHF's `_post_request` gets it."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(address, json=body) as response,
    ):
        response.raise_for_status()
        return await response.json()


async def test_openrlhf_gets_all_rewards_of_a_rollout_at_the_first_try(server: Server) -> None:
    address = url(server, "/rewards/openrlhf", key_of("trainer"))

    async def reward(number: int) -> tuple[float, float, dict[str, float]]:
        query = f"{PROMPT}quality={number}<|im_end|>\n"
        body = {"query": [query], "prompts": [PROMPT], "labels": ["quality=30"]}
        info = await posted(address, body)
        # SingleTurnAgentExecutor reads the answer like this.
        rewards, scores = info.get("rewards"), info.get("scores") or info.get("rewards")
        logs = info.get("extra_logs") or {}
        return rewards[0], scores[0], {name: value[0] for name, value in logs.items()}

    found = await asyncio.gather(*(reward(number) for number in range(60)))
    for number, (value, score, logs) in enumerate(found):
        assert value == (number > 30) - (number < 30)
        assert score == (value + 1) / 2
        assert logs == {**dict.fromkeys(FLAGS, 0), "tied": int(number == 30)}


async def test_a_wrong_key_is_refused(server: Server) -> None:
    with pytest.raises(aiohttp.ClientResponseError) as refused:
        await posted(url(server, "/rewards/openrlhf", "wrong"), {})
    assert refused.value.status == 401
