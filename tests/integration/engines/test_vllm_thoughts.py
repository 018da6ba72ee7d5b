"""Thoughts of a tiny judge that adds digits, over real vLLM."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import build
from app.settings import Settings
from app.wiring.services import open_services
from tests.demo_judge.train_thinking import MOST_DIGITS, Sum, sums, trained
from tests.unit.kinds.scenes import Quiet

pytestmark = [
    pytest.mark.vllm,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

# Three tokens for each digit, the label and the end.
WHOLE = 3 * MOST_DIGITS + 2
PAIRS = list(itertools.islice(sums(7), 60))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained judge and its prompt."""
    return trained(tmp_path_factory.mktemp("thinking"))


@asynccontextmanager
async def service(folder: Path, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        **{
            "scoring": "thoughts",
            "think_tokens": WHOLE,
            "prompt_file": folder / "prompt.toml",
            "store_url": "memory://",
            "model": str(folder),
            **given,
        }
    )
    app = build(settings, lambda: open_services(settings, Quiet(), on_lost=print), keys=None)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=300) as client,
    ):
        yield client


def body(pair: Sum) -> dict[str, str]:
    return {
        "question": pair.question,
        "response_a": pair.response_a,
        "response_b": pair.response_b,
    }


async def judged(client: httpx.AsyncClient, pairs: list[Sum]) -> list[dict[str, Any]]:
    batch = {"comparisons": [body(pair) for pair in pairs], "alpha": None}
    answer = await client.post("/judge/batch", json=batch)
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


async def test_thoughts_repeat_alone_and_together(folder: Path) -> None:
    async with service(folder) as client:
        results = await judged(client, PAIRS)
        assert await judged(client, PAIRS) == results
        alone = [(await judged(client, [pair]))[0] for pair in PAIRS[:10]]
        assert [row["p_bar"] for row in alone] == pytest.approx(
            [row["p_bar"] for row in results[:10]], abs=1e-4
        )
        assert {row["reason"] for row in results} == {None}
        assert min(row["label_mass"] for row in results) > 0.9
        info = (await client.get("/info")).json()
        assert (info["kind"], info["scoring"]["think_end"]) == (
            "chat model that thinks",
            "</think>",
        )
        metrics = (await client.get("/metrics")).text
        assert 'scope_thoughts_total{outcome="ended"}' in metrics
