"""Tests of judgments in words."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from app.api.answers.judgments import to_text
from app.core.comparison import Criterion, Judgment
from app.core.score import Preference
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


@pytest.mark.parametrize(
    ("p_fwd", "p_rev", "order"),
    [(0.6, 0.4, "reads first"), (0.4, 0.6, "reads second"), (0.6, 0.6, None)],
)
def test_an_abstention_writes_its_numbers_apart_and_says_which_order_won(
    p_fwd: float, p_rev: float, order: str | None
) -> None:
    preference = Preference(p_fwd=p_fwd, p_rev=p_rev, p_bar=0.501, uncertainty=0.693131)
    criterion = Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default")
    judgment = Judgment(
        verdict="abstain",
        reason="uncertain",
        preference=preference,
        label_mass=None,
        threshold=0.693102,
        criterion=criterion,
        risk_level=None,
        calibration=None,
        judge="demo",
    )
    words = to_text(judgment)
    assert "0.693131 is above 0.693102, the threshold of alpha 0.1 (marginal)" in words
    assert (order is not None) == ("in both orders" in words)
    assert order is None or order in words
