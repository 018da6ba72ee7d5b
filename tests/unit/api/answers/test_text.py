"""Tests of judgments in words."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import comparison, examples


async def told(client: httpx.AsyncClient, gap: float, **fields: object) -> str:
    body = comparison(response_a=f"quality={gap}", response_b="quality=0", **fields)
    words: str = (await client.post("/judge", json=body)).raise_for_status().json()["words"]
    return words


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(min_label_mass=0.5) as client:
        (await client.post("/calibrate", json={"examples": examples(100)})).raise_for_status()
        yield client


async def test_a_verdict_names_its_uncertainty_and_its_threshold(
    client: httpx.AsyncClient,
) -> None:
    words = await told(client, 3.0, alpha=0.1)
    assert re.fullmatch(
        r"Response A is better: the uncertainty 0\.\d{4} is not above 0\.\d{4}, the threshold of "
        r"alpha 0\.1 \(marginal\)\.",
        words,
    )


async def test_a_verdict_without_alpha_says_that_nothing_is_promised(
    client: httpx.AsyncClient,
) -> None:
    assert await told(client, -3.0, alpha=None) == (
        "Response B is better. No alpha was given, so nothing is promised."
    )


async def test_an_abstention_says_why(client: httpx.AsyncClient) -> None:
    infeasible = await told(client, 3.0, alpha=0.0001, guarantee="pac")
    assert "not enough for alpha 0.0001 (pac, delta 0.1)" in infeasible
    assert "equally good" in await told(client, 0.0, alpha=0.1)
