"""Second labels of people set the label noise of a set, and the trail keeps them."""

from typing import Any

import httpx
import pytest

from app.core.noise import LabelNoiseBounds
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem
from tests.unit.api.test_previews import scored

SET = "/calibrations/default"


async def measured(
    client: httpx.AsyncClient, pairs: int, disagreements: int, **more: Any
) -> httpx.Response:
    """Sends second labels."""
    fingerprint = (await client.get("/info")).json()["fingerprint"]
    second = {"pairs": pairs, "disagreements": disagreements}
    body = {"fingerprint": fingerprint, "examples": [], "second_labels": second, **more}
    return await client.post(f"{SET}/examples", json=body)


async def newest(client: httpx.AsyncClient) -> dict[str, Any]:
    (change,) = (await client.get(f"{SET}/versions", params={"limit": 1})).json()["versions"]
    return dict(change)


async def test_the_set_gets_the_lower_bound_and_the_trail_says_why() -> None:
    async with client_of() as client:
        await calibrated(client)
        would = (await measured(client, 100, 20, dry_run=True)).json()
        assert (await newest(client))["version"] == 1
        done = (await measured(client, 100, 20)).json()
        change = await newest(client)
        shown = (await client.get(SET)).json()
    low = LabelNoiseBounds.of(20, 100).low
    # Between no noise and the noise of a share of 0.2, (1 - sqrt(0.6)) / 2 = 0.113.
    assert 0.05 < low < 0.113
    assert would["label_noise"] == done["label_noise"] == shown["label_noise"] == low
    assert would["thresholds"] == shown["thresholds"]
    assert (change["action"], change["second_labels"], change["disagreements"]) == (
        "noise",
        100,
        20,
    )
    assert change["label_noise"] == low
    assert (change["version"], change["n"], change["added"]) == (2, 60, 0)


async def test_labels_that_agree_are_recorded_although_nothing_changes() -> None:
    async with client_of() as client:
        before = await calibrated(client)
        done = (await measured(client, 100, 0)).json()
        change = await newest(client)
    assert (done["label_noise"], done["version"]) == (0.0, 2)
    assert done["thresholds"] == before["thresholds"]
    assert (change["second_labels"], change["disagreements"]) == (100, 0)


async def test_a_noise_that_ends_all_verdicts_is_refused_unless_it_is_asked_for() -> None:
    async with client_of() as client:
        await calibrated(client)
        await measured(client, 100, 30)
        await client.post("/judge", json=comparison(alpha=0.01))
        # Without an error among 60 labels, 1 / 60 is at most 0.01 only if labels may be wrong.
        assert problem(await measured(client, 100, 0), "becomes_infeasible")
        done = await measured(client, 100, 0, even_if_infeasible=True)
    assert done.json()["label_noise"] == 0.0


@pytest.mark.parametrize(
    ("pairs", "disagreements", "more", "said"),
    [
        (10, 11, {}, "more disagreements than pairs"),
        (100, 60, {}, "no more than by chance"),
        (100, 10, {"label_noise": 0.1}, "without examples and other changes"),
        (100, 10, {"replace": True}, "without examples and other changes"),
        (100, 10, {"clusters": "ignore"}, "without examples and other changes"),
        (0, 0, {}, "greater than or equal to 1"),
    ],
)
async def test_second_labels_that_say_nothing_are_refused(
    pairs: int, disagreements: int, more: dict[str, Any], said: str
) -> None:
    async with client_of() as client:
        await calibrated(client)
        refused = await measured(client, pairs, disagreements, **more)
        assert (await newest(client))["version"] == 1
    assert said in str(problem(refused, "invalid_request"))


async def test_second_labels_make_no_set_and_come_alone() -> None:
    async with client_of() as client:
        problem(await measured(client, 100, 10), "calibration_not_found")
        assert (await client.get("/calibrations")).json()["calibrations"] == []
        await calibrated(client)
        examples = (await scored(client, 3))["examples"]
        problem(await measured(client, 100, 10, examples=examples), "invalid_request")
