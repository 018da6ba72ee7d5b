"""Tests of GET /calibrations/{name}/monitor, and of judgments after an alarm, over HTTP."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.keys import Keys
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples, problem
from tests.unit.api.test_metrics import metrics_of

PATH = "/calibrations/default/monitor"
fresh = itertools.count()


def pairs(count: int, *, quality: float = 3.0) -> list[dict[str, Any]]:
    """New pairs of which the judge prefers response A; it is as sure as `quality` says."""
    return [
        comparison(question=f"New {next(fresh)}?", response_a=f"quality={quality + i / 100}")
        for i in range(count)
    ]


async def calibrate(client: httpx.AsyncClient, **fields: Any) -> None:
    body = {"examples": examples(100), **fields}
    (await client.post("/calibrate", json=body)).raise_for_status()


async def judge(
    client: httpx.AsyncClient, comparisons: Sequence[dict[str, Any]], **fields: Any
) -> list[dict[str, Any]]:
    body = {"comparisons": list(comparisons), **fields}
    answer = (await client.post("/judge/batch", json=body)).raise_for_status()
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


async def label(client: httpx.AsyncClient, labels: Sequence[tuple[str, str]]) -> None:
    body = {"labels": [{"id": each, "label": given} for each, given in labels]}
    (await client.post("/audits/labels", json=body)).raise_for_status()


async def shown(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get(PATH)).raise_for_status().json()
    return answer


async def test_a_set_that_nobody_audits_says_how_to_switch_audits_on() -> None:
    async with client_of() as client:
        await calibrate(client)
        await judge(client, pairs(20))
        found = await shown(client)
        assert (found["name"], found["version"]) == ("default", 1)
        assert (found["criteria"], found["refused"], found["alarm"]) == ([], 0, False)
        assert "SCOPE_AUDIT_RATE" in found["note"]
        streams = {name: stream for name, stream in found["drift"].items() if stream is not None}
        assert set(streams) == {"uncertainty", "position_gap", "label_mass"}
        assert not any(stream["alarm"] for stream in streams.values())
        problem(await client.get("/calibrations/none/monitor"), "calibration_not_found")


async def test_after_an_alarm_judgments_abstain_and_rewards_are_none() -> None:
    async with client_of(audit_rate=1.0, on_alarm="abstain") as client:
        await calibrate(client)
        judged = await judge(client, pairs(40), alpha=0.1)
        await label(client, [(each["audit"]["id"], "B") for each in judged])
        (criterion,) = (await shown(client))["criteria"]
        assert criterion["alarm"]
        assert criterion["suspended"]
        metrics, place = await metrics_of(client), ("0.1", "default", "", "marginal")
        for name in ("alarm", "audited", "open", "evidence"):
            assert metrics[f"scope_monitor_{name}", *place] == criterion[name]
        for each in await judge(client, pairs(5), alpha=0.1):
            assert (each["verdict"], each["reason"], each["preferred"]) == (
                "abstain",
                "suspended",
                "A",
            )
            assert each["threshold"] is not None
        # Another criterion of the same set judges on.
        assert {each["verdict"] for each in await judge(client, pairs(5), alpha=0.2)} == {"A"}
        group = {
            "question": "Which?",
            "responses": ["quality=9", "quality=5", "quality=0"],
            "alpha": 0.1,
        }
        rewards = (await client.post("/rewards/group", json=group)).raise_for_status().json()
        assert rewards["rewards"] == [None] * 3
        assert rewards["reasons"] == ["suspended"] * 3
        metrics = await metrics_of(client)
        # Metrics count the reason, too: 5 judgments and 3 pairs of the group.
        assert metrics["scope_judgments_total", "suspended", "abstain"] == 8.0
        await calibrate(client, examples=examples(7))
        assert (await shown(client))["criteria"][0]["suspended"]
        for each in await judge(client, pairs(5), alpha=0.1):
            assert each["reason"] == "suspended"
        await calibrate(client, examples=examples(101))
        assert (await shown(client))["criteria"] == []
        assert {each["verdict"] for each in await judge(client, pairs(5), alpha=0.1)} == {"A"}


RESUME, TRAIL = "/calibrations/default/resume", "/calibrations/default/audit-trail"
REASON = {"reason": "the labels were of another project"}


async def test_a_key_with_its_role_resumes_and_the_trail_tells_all(tmp_path: Path) -> None:
    entries = entry("all", ["judge", "calibrate"]), entry("trainer", ["judge"])
    keys = Keys(write_keys(tmp_path / "keys.json", *entries))
    async with client_of(keys=keys, audit_rate=1.0, on_alarm="abstain") as client:
        client.headers.update(header_of("all"))
        await calibrate(client)
        judged = await judge(client, pairs(40), alpha=0.1)
        audits = [each["audit"]["id"] for each in judged]
        await label(client, [(each, "B") for each in audits])
        (criterion,) = (await shown(client))["criteria"]
        closing = {"id": audits[0], "label": "none", "reason": "the texts are gone"}
        (await client.post("/audits/labels", json={"labels": [closing]})).raise_for_status()
        assert (await judge(client, pairs(1), alpha=0.1))[0]["reason"] == "suspended"
        rang = {
            "alpha": 0.1,
            "guarantee": "marginal",
            "delta": None,
            "rang_at": criterion["rang_at"],
        }
        answer = (await client.post(RESUME, json=REASON)).json()
        assert answer == {"name": "default", "resumed": [rang]}
        assert (await client.post(RESUME, json=REASON)).json()["resumed"] == []
        assert (await judge(client, pairs(1), alpha=0.1))[0]["verdict"] == "A"
        assert not (await shown(client))["criteria"][0]["alarm"]
        found = (await client.get(TRAIL, headers=header_of("trainer"))).json()
        assert (found["name"], found["next_before"]) == ("default", None)
        assert {each["by"] for each in found["entries"]} == {"all"}
        resumed, closed, alarm = found["entries"]
        assert {**REASON, "event": "resumed", "alpha": 0.1}.items() <= resumed.items()
        change = {"event": "label_changed", "before": "B", "after": "none"}
        assert {**change, "reason": closing["reason"]}.items() <= closed.items()
        rung = {"event": "alarm", "at": criterion["rang_at"], "suspended": True}
        assert rung.items() <= alarm.items()
        page = (await client.get(TRAIL, params={"limit": 2})).json()
        rest = await client.get(TRAIL, params={"limit": 2, "before": page["next_before"]})
        assert page["entries"] + rest.json()["entries"] == found["entries"]


async def test_the_light_is_never_green_while_the_error_may_be_above_alpha() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrate(client)
        found = await shown(client)
        assert (found["light"], found["summary"]) == (
            "amber",
            "nothing is known about wrong verdicts",
        )
        # Their scores are those of the labeled pairs, so that nothing drifts.
        alike = [
            {**each, "response_a": f"quality={(i % 60 + 1) / 15}"}
            for i, each in enumerate(pairs(100))
        ]
        one_question = [
            {**each, "question": "Which?", "response_b": f"quality=0 {i}"}
            for i, each in enumerate(alike)
        ]
        drawn = await judge(client, one_question)
        await label(client, [(each["audit"]["id"], "A") for each in drawn])
        found = await shown(client)
        (criterion,) = found["criteria"]
        assert (criterion["audited"], criterion["questions"]) == (100, 1)
        assert criterion["error_interval"][1] > 0.1
        assert found["light"] == "amber"
        assert "100 labels of 1 question" in found["note"]
        metrics = await metrics_of(client)
        assert metrics["scope_monitor_questions", "0.1", "default", "", "marginal"] == 1.0
        # Enough questions make it green.
        many = await judge(client, alike)
        await label(client, [(each["audit"]["id"], "A") for each in many])
        found = await shown(client)
        assert found["criteria"][0]["error_interval"][1] <= 0.1
        assert found["light"] == "green"
        assert "labels prove that this is kept" in found["summary"]
        await label(client, [(each["audit"]["id"], "B") for each in many])
        found = await shown(client)
        assert (found["light"], found["alarm"], found["alarm_evidence"]) == ("red", True, 20)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("book.MOST_OPEN", "audits of this set are open, so no more are drawn"),
        ("auditor.MOST_CRITERIA", "judgments under further criteria than the"),
    ],
)
async def test_the_note_says_that_judgments_are_not_drawn(
    limit: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"app.audits.{limit}", 1)
    async with client_of(audit_rate=1.0) as client:
        await calibrate(client)
        for alpha in (0.3, 0.4):
            await judge(client, pairs(1), alpha=alpha)
        assert words in (await shown(client))["note"]


async def test_a_criterion_with_an_alarm_comes_first_and_is_what_the_summary_is_about() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrate(client)
        for alpha, given, right in ((0.1, pairs(30), "B"), (0.3, pairs(40), "A")):
            drawn = await judge(client, given, alpha=alpha)
            await label(client, [(each["audit"]["id"], right) for each in drawn])
        found = await shown(client)
        assert [each["alpha"] for each in found["criteria"]] == [0.1, 0.3]
        assert "promised were 10%" in found["summary"]


async def test_alpha_and_delta_are_read_with_four_digits() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrate(client)
        # As a client with numbers of 32 bits sends 0.3 and 0.1.
        asked = {"guarantee": "pac", "alpha": 0.30000000447034836, "delta": 0.10000000149011612}
        answer = (await client.post("/judge", json=comparison(**asked))).json()
        assert (answer["alpha"], answer["delta"]) == (0.3, 0.1)
        for share in (0.00004, 0.99996):
            refused = await client.post("/judge", json=comparison(alpha=share))
            assert problem(refused, "invalid_request")["errors"][0]["field"] == "alpha"


async def test_the_monitor_says_how_many_accepted_verdicts_are_on_ties() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrate(client)
        ids = [each["audit"]["id"] for each in await judge(client, pairs(119))]
        await label(client, [(each, "A" if i < 58 else "tie") for i, each in enumerate(ids)])
        found = await shown(client)
        (criterion,) = found["criteria"]
        assert [criterion[name] for name in ("labelled", "ties", "errors")] == [119, 61, 0]
        low, high = criterion["tie_interval"]
        assert 0.35 < low < 61 / 119 < high < 0.67
        assert "61 of 119 labels are ties: " in found["summary"]
