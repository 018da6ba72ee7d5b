"""Several alphas share one delta, so that one of them may be chosen after a look."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem

PAC = {"guarantee": "pac", "alpha": 0.2}
RESPONSES = [f"quality={i}" for i in range(3)]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of() as client:
        await calibrated(client)
        yield client


async def judged(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await client.post("/judge", json=comparison(**fields))).json()
    return found


async def test_the_answer_is_that_of_the_divided_delta(client: httpx.AsyncClient) -> None:
    shared = await judged(client, **PAC, delta=0.1, delta_for=5)
    assert shared == await judged(client, **PAC, delta=0.02)
    assert shared["delta"] == 0.02
    assert await judged(client, **PAC, delta_for=4) == await judged(client, **PAC, delta=0.025)


async def test_one_alpha_keeps_its_delta_also_without_pac(client: httpx.AsyncClient) -> None:
    assert await judged(client, delta_for=1) == await judged(client)
    assert await judged(client, **PAC, delta_for=1) == await judged(client, **PAC)


async def test_an_item_inherits_the_number_of_alphas_of_its_batch(
    client: httpx.AsyncClient,
) -> None:
    items = [comparison(), comparison(delta=0.05), comparison(delta_for=2), comparison(delta_for=1)]
    body = {**PAC, "delta_for": 5, "comparisons": items}
    results = (await client.post("/judge/batch", json=body)).json()["results"]
    assert [each["delta"] for each in results] == [0.02, 0.01, 0.05, 0.1]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/rewards/group", {"question": "Which?", "responses": RESPONSES}),
        (
            "/rewards/reference",
            {"question": "Which?", "responses": RESPONSES, "reference": "quality=9"},
        ),
    ],
)
async def test_rewards_divide_delta_too(
    client: httpx.AsyncClient, path: str, fields: dict[str, Any]
) -> None:
    body = {**fields, **PAC, "delta_for": 5, "comparisons": True}
    found = (await client.post(path, json=body)).json()
    assert {each["judgment"]["delta"] for each in found["comparisons"]} == {0.02}
    body = {**fields, "delta_for": 5}
    assert "delta_for" in problem(await client.post(path, json=body), "invalid_request")["detail"]


async def test_a_delta_that_cannot_be_divided_is_refused(client: httpx.AsyncClient) -> None:
    tiny = comparison(**PAC, delta=5e-324, delta_for=1000)
    problem(await client.post("/judge", json=tiny), "invalid_request")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ({}, []),
        ({"alpha": 0.2}, [(0.2, 0.1)]),
        ({"alpha": [0.2, 0.1]}, [(0.2, 0.05), (0.1, 0.05)]),
        ({"alpha": [0.2, 0.1, 0.2]}, [(0.2, 0.05), (0.1, 0.05)]),
        ({"alpha": [0.2, 0.3], "delta": 0.2}, [(0.2, 0.1), (0.3, 0.1)]),
        ({"alpha": [0.2, 0.3], "delta_for": 5}, [(0.2, 0.02), (0.3, 0.02)]),
        ({"alpha": [0.2, 0.3], "delta": 0.3, "delta_for": 1}, [(0.2, 0.3), (0.3, 0.3)]),
    ],
)
async def test_a_set_shows_the_thresholds_of_several_alphas_at_their_share(
    client: httpx.AsyncClient, query: dict[str, Any], rows: list[tuple[float, float]]
) -> None:
    found = (await client.get("/calibrations/default", params=query)).json()["requested"]
    assert [(row["alpha"], row["delta"]) for row in found] == rows
    for row in found:
        judgment = await judged(client, guarantee="pac", alpha=row["alpha"], delta=row["delta"])
        assert (row["guarantee"], row["threshold"]) == ("pac", judgment["threshold"])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": ["0.1", "x"]}, "alpha"),
        ({"alpha": [0.001 * i for i in range(1, 34)]}, "alpha"),
        ({"delta": 0.1}, "delta"),
        ({"delta_for": 2}, "delta_for"),
        ({"alpha": 0.1, "delta_for": 0}, "delta_for"),
        ({"alphas": 0.1}, "alphas"),
    ],
)
async def test_a_wrong_query_is_named(
    client: httpx.AsyncClient, query: dict[str, Any], field: str
) -> None:
    answer = await client.get("/calibrations/default", params=query)
    body = problem(answer, "invalid_request")
    assert body["errors"][0]["field"].split(".")[0] == field


async def test_figures_that_invite_a_look_show_its_price(client: httpx.AsyncClient) -> None:
    await client.delete("/calibrations/default")
    await calibrated(client, 5)
    found = (await client.get("/calibrations/default")).json()["infeasible"]
    assert {row["guarantee"] for row in found} == {"marginal", "pac"}
    for row in found:
        assert row["after_looking"].startswith("not promised: this is a choice made after seeing")
        assert ("delta_for" in row["after_looking"]) == (row["guarantee"] == "pac")
