"""Promises of audits and alarms that were broken once, each through HTTP."""

from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, examples, problem

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


async def alarm(client: httpx.AsyncClient, *, first: int = 0) -> None:
    """Raises an alarm at alpha 0.1 by 30 verdicts that are all wrong."""
    questions = range(first, first + 30)
    await label(client, await drawn(client, [comparison(question=f"{n}?") for n in questions]), "B")
    assert (await monitor_of(client))["alarm"]


async def verdict_at(client: httpx.AsyncClient, alpha: float) -> dict[str, Any]:
    asked = comparison(question=f"At {alpha}?", alpha=alpha)
    answer: dict[str, Any] = (await client.post("/judge", json=asked)).json()
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


async def test_a_label_counts_once_no_further_draw_of_its_question_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Other tests count labels at once; this is the value of the service.
    monkeypatch.setattr("app.audits.figures.QUESTION_S", 3600.0, raising=False)
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        await label(client, await drawn(client, [comparison(question="One?")]), "B")
        (criterion,) = (await monitor_of(client))["criteria"]
        assert (criterion["audited"], criterion["waiting"], criterion["open"]) == (0, 1, 0)


async def test_an_alarm_suspends_all_alphas_of_its_set_up_to_its_own() -> None:
    async with client_of(audit_rate=1.0, on_alarm="abstain") as client:
        await calibrated(client)
        await alarm(client)
        for alpha in (FLOAT32, 0.1000001, 0.0999, 0.05):
            assert (await verdict_at(client, alpha))["reason"] == "suspended", alpha
        assert (await verdict_at(client, 0.2))["verdict"] == "A"


async def test_alpha_and_delta_are_read_with_four_digits() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        asked = {"guarantee": "pac", "alpha": 0.30000000447034836, "delta": FLOAT32}
        answer = (await client.post("/judge", json=comparison(question="?", **asked))).json()
        assert (answer["alpha"], answer["delta"]) == (0.3, 0.1)
        for share in (0.00004, 0.99996):
            refused = await client.post("/judge", json=comparison(question="?", alpha=share))
            assert problem(refused, "invalid_request")["errors"][0]["field"] == "alpha"


async def test_the_default_criterion_of_the_service_is_always_audited() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        for number in range(70):
            await verdict_at(client, 0.2 + number / 1000)
        answer = (await client.post("/judge", json=comparison(question="Default?"))).json()
        assert answer["audit"] is not None


async def test_a_draw_without_texts_holds_up_labels_for_an_hour_at_most() -> None:
    async with client_of(audit_rate=1.0, audit_texts=True) as client:
        await calibrated(client)
        long = comparison(question="Long?" + " word" * 30_000)
        await drawn(client, [long, comparison(question="Short?")])
        waits = []
        for audit in (await client.get("/audits")).json()["audits"]:
            times = (audit["drawn_at"], audit["expires_at"])
            begin, end = (datetime.fromisoformat(each) for each in times)
            waits.append((end - begin).total_seconds())
        assert waits == [3600.0, 14 * 86400.0]


async def test_neither_a_rollback_nor_a_roll_forward_ends_an_alarm() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)

        async def replaced(start: int) -> None:
            new = [{**each, "question": f"{start} {each['question']}"} for each in examples(60)]
            body = {"examples": new, "replace": True}
            (await client.post("/calibrate", json=body)).raise_for_status()

        async def back_to(version: int) -> None:
            body = {"version": version}
            answer = await client.post("/calibrations/default/rollback", json=body)
            assert answer.status_code == 200, answer.text

        await replaced(1)
        await alarm(client)
        await back_to(1)
        assert (await monitor_of(client))["light"] == "red"
        # One new example beside those of version 1 is not half of the set.
        await client.post("/calibrate", json={"examples": examples(61)[60:]})
        assert (await monitor_of(client))["light"] == "red"
        await back_to(2)
        assert (await monitor_of(client))["light"] == "red"
        await replaced(2)
        assert (await monitor_of(client))["light"] != "red"
        # The examples that raised it bring it back.
        await back_to(2)
        assert (await monitor_of(client))["light"] == "red"
        reason = {"reason": "the labels were mixed up"}
        (await client.post("/calibrations/default/resume", json=reason)).raise_for_status()
        assert (await monitor_of(client))["light"] != "red"


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
