"""Groups through HTTP: declared ones are taken, and any other group is an error."""

from typing import Any

import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem


async def test_a_judgment_takes_a_declared_group_only() -> None:
    async with client_of(groups="math,code") as client:
        await calibrated(client)
        for fields in ({}, {"group": None}, {"group": "math"}):
            answer = await client.post("/judge", json=comparison(**fields))
            assert answer.json()["verdict"] == "A", answer.text
        refused = await client.post("/judge", json=comparison(group="maths"))
        body = problem(refused, "invalid_request")
        assert "code, math" in body["detail"]
        assert body["errors"][0]["field"] == "group"


async def test_an_undeclared_group_fails_its_row_of_a_batch_only() -> None:
    async with client_of(groups="math") as client:
        await calibrated(client)
        rows = [comparison(group=group) for group in ("math", "maths", None, "two words")]
        answer = (await client.post("/judge/batch", json={"comparisons": rows})).json()
        failed = ["error" in each for each in answer["results"]]
        assert failed == [False, True, False, True]


async def test_without_an_alpha_a_group_has_no_effect() -> None:
    async with client_of() as client:
        answer = await client.post("/judge", json=comparison(alpha=None, group="anything"))
        assert answer.json()["verdict"] == "A", answer.text


@pytest.mark.parametrize("group", ["", "two words", "m\u00e4th", "x" * 65, "a/b", 5, ["math"]])
async def test_a_group_that_is_not_a_name_is_refused(group: Any) -> None:
    async with client_of(groups="math") as client:
        await calibrated(client)
        problem(await client.post("/judge", json=comparison(group=group)), "invalid_request")
