"""Promises of audits and alarms that were broken once, each through HTTP."""

from typing import Any

import httpx

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem

# The same alpha as a client with numbers of 32 bits sends it.
FLOAT32 = 0.10000000149011612


async def drawn(client: httpx.AsyncClient, pairs: list[dict[str, Any]]) -> list[str]:
    answer = await client.post("/judge/batch", json={"comparisons": pairs})
    return [each["audit"]["id"] for each in answer.json()["results"]]


async def label(client: httpx.AsyncClient, ids: list[str], side: str) -> None:
    rows = [{"id": each, "label": side} for each in ids]
    (await client.post("/audits/labels", json={"labels": rows})).raise_for_status()


async def monitor_of(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get("/calibrations/default/monitor")).json()
    return answer


async def test_the_light_is_never_green_while_the_error_may_be_above_alpha() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        template = "Which answer is better?"
        pairs = [
            comparison(question=template, response_a=f"quality={(n + 1) / 25}") for n in range(100)
        ]
        await label(client, await drawn(client, pairs), "A")
        monitor = await monitor_of(client)
        (criterion,) = monitor["criteria"]
        assert (criterion["audited"], criterion["questions"]) == (100, 1)
        assert criterion["error_interval"][1] > 0.1
        assert monitor["light"] == "amber"
        assert "100 labels of 1 question" in monitor["note"]
        text = (await client.get("/metrics")).text
        assert 'scope_monitor_questions{alpha="0.1",calibration="default"' in text
        # Enough questions make it green.
        many = [
            comparison(question=f"{n}?", response_a=f"quality={(n % 60 + 1) / 15}")
            for n in range(100)
        ]
        await label(client, await drawn(client, many), "A")
        monitor = await monitor_of(client)
        assert monitor["criteria"][0]["error_interval"][1] <= 0.1
        assert monitor["light"] == "green"


async def test_alpha_and_delta_are_read_with_four_digits() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        asked = {"guarantee": "pac", "alpha": 0.30000000447034836, "delta": FLOAT32}
        answer = (await client.post("/judge", json=comparison(question="?", **asked))).json()
        assert (answer["alpha"], answer["delta"]) == (0.3, 0.1)
        for share in (0.00004, 0.99996):
            refused = await client.post("/judge", json=comparison(question="?", alpha=share))
            assert problem(refused, "invalid_request")["errors"][0]["field"] == "alpha"


async def test_the_monitor_says_how_many_accepted_verdicts_are_on_ties() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        ids = await drawn(client, [comparison(question=f"{n}?") for n in range(119)])
        await label(client, ids[:58], "A")
        await label(client, ids[58:], "tie")
        monitor = await monitor_of(client)
        (criterion,) = monitor["criteria"]
        assert [criterion[name] for name in ("labelled", "ties", "errors")] == [119, 61, 0]
        low, high = criterion["tie_interval"]
        assert 0.35 < low < 61 / 119 < high < 0.67
        assert "61 of 119 labels are ties: " in monitor["summary"]
