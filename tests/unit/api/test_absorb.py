"""Tests of what an absorption says before it happens, and of what it refuses."""

import itertools
import re
from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem
from tests.unit.api.test_audits import absorbed, drawn, send

_NUMBERS = itertools.count(1000)


async def labelled(client: httpx.AsyncClient, numbers: range, label: str = "A") -> None:
    await send(client, dict.fromkeys(await drawn(client, numbers), label))


async def alarmed(client: httpx.AsyncClient) -> None:
    """Makes the set, and an alarm by 30 draws whose labels are all wrong."""
    await calibrated(client)
    await labelled(client, range(30), "B")
    monitor = (await client.get("/calibrations/default/monitor")).json()
    assert monitor["criteria"][0]["rang_at"] is not None


async def version(client: httpx.AsyncClient) -> int:
    number: int = (await client.get("/calibrations/default")).json()["version"]
    return number


def row_of(answer: dict[str, Any], alpha: float) -> dict[str, Any]:
    """The threshold of "marginal" at an alpha that every set shows."""
    (row,) = (
        row
        for row in answer["thresholds"]
        if (row["guarantee"], row["alpha"]) == ("marginal", alpha)
    )
    return dict(row)


async def test_a_dry_run_says_what_the_absorption_then_does() -> None:
    async with client_of(audit_rate=1.0) as client:
        before = await calibrated(client)
        await labelled(client, range(40))
        would = (await absorbed(client, dry_run=True)).json()
        assert await version(client) == 1
        done = (await absorbed(client)).json()
        now = (await client.get("/calibrations/default")).json()
    assert (would.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert (would.pop("version"), done.pop("version")) == (1, 2)
    assert would == done
    (effect,) = would["effects"]
    assert effect["before"] == row_of(before, 0.1)
    assert effect["after"] == row_of(now, 0.1)
    assert (effect["becomes_infeasible"], effect["more_labels"]) == (False, 0)
    assert would["note"].startswith("60 examples become 100 (40 added, 0 updated, 0 removed); ")


async def test_an_absorption_that_ends_all_verdicts_is_refused_unless_it_is_asked_for() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        await labelled(client, range(5))
        would = (await absorbed(client, replace=True, dry_run=True)).json()
        (effect,) = would["effects"]
        # Without an error among k labels, 1 / k must be at most 0.1.
        assert (effect["becomes_infeasible"], effect["more_labels"]) == (True, 5)
        assert "gets no more verdicts: about 5 more labels" in would["note"]
        refused = problem(await absorbed(client, replace=True), "becomes_infeasible")
        assert "alpha 0.1 (marginal): about 5 more labels" in refused["detail"]
        assert await version(client) == 1
        await labelled(client, range(5, 10))
        assert (await absorbed(client, replace=True)).json()["n"] == 10
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        await labelled(client, range(5))
        forced = await absorbed(client, replace=True, even_if_infeasible=True)
        assert forced.json()["effects"][0]["becomes_infeasible"]
        assert await version(client) == 2


async def test_an_alpha_that_was_infeasible_before_holds_nothing_up() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        await client.post("/judge", json=comparison(question="Strict?", alpha=0.001))
        (one,) = (await client.get("/audits")).json()["audits"]
        await send(client, {one["id"]: "A"})
        answer = (await absorbed(client)).json()
        effect = answer["effects"][0]
        assert (effect["alpha"], effect["before"]["feasible"]) == (0.001, False)
        assert (effect["after"]["feasible"], effect["becomes_infeasible"]) == (False, False)
        assert effect["more_labels"] == 939


async def test_the_alphas_of_draws_and_of_recent_traffic_are_in_use() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        await labelled(client, range(3))
        pac = {"guarantee": "pac", "delta": 0.2}
        await client.post("/judge", json=comparison(question="P?", alpha=0.2, **pac))
        await client.post("/judge", json=comparison(question="None?", alpha=None))
        # The pair of a draw is a labelled example of the next version, and is not drawn again.
        asked = {"unlabelled": "leave_out"}
        await absorbed(client, **asked)
        await client.post("/judge", json=comparison(question="Traffic 0?", alpha=0.3))
        effects = (await absorbed(client, **asked, dry_run=True)).json()["effects"]
        used = [(each["guarantee"], each["alpha"], each["delta"]) for each in effects]
        # Those of the absorbed draws, and of the judgment by this version that was not drawn.
        assert used == [("marginal", 0.1, None), ("marginal", 0.3, None)]


async def test_the_first_audits_since_an_alarm_are_absorbed() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        since = {"since": "alarm", "audits": 12, "replace": True}
        await absorbed(client, since="alarm", audits=12, begin=True)
        await labelled(client, range(100, 105))
        detail = problem(await absorbed(client, **since), "audits_incomplete")["detail"]
        assert "has 5 audits in that time so far, and 12 are asked for, of which 7" in detail
        await labelled(client, range(105, 112))
        # Later draws without a label do not count.
        await drawn(client, range(112, 120))
        answer = (await absorbed(client, **since)).json()
        assert [answer[name] for name in ("n", "added", "removed", "unlabelled_audits")] == [
            12,
            12,
            60,
            0,
        ]


async def test_the_recipe_of_the_monitor_brings_verdicts_back() -> None:
    async with client_of(audit_rate=1.0, on_alarm="abstain") as client:
        await calibrated(client)
        assert (await monitored(client))["recovery"] is None
        await send(client, dict.fromkeys(await alike(client, 60), "B"))
        recovery = (await monitored(client))["recovery"]
        needed = recovery["audits"]
        assert (recovery["alpha"], recovery["guarantee"]) == (0.1, "marginal")
        assert (needed, recovery["drawn"], recovery["labelled"]) == (200, 0, 0)
        # Suspended judgments are drawn, so the audits are a sample of all traffic.
        suspended = (await client.post("/judge", json=comparison(question="Now?"))).json()
        assert suspended["reason"] == "suspended"
        await send(client, dict.fromkeys(await alike(client, needed - 10), "A"))
        asked = {"since": "alarm", "audits": needed, "replace": True}
        problem(await absorbed(client, **asked, dry_run=True), "audits_incomplete")
        recovery = (await monitored(client))["recovery"]
        assert (recovery["drawn"], recovery["labelled"]) == (needed - 9, needed - 10)
        await send(client, {suspended["audit"]["id"]: "A"})
        await send(client, dict.fromkeys(await alike(client, 9), "A"))
        # Later draws do not count.
        await alike(client, 5)
        effects = (await absorbed(client, **asked, dry_run=True)).json()["effects"]
        assert [each["after"]["feasible"] for each in effects] == [True]
        assert (await absorbed(client, **asked)).json()["n"] == needed
        assert (await monitored(client))["recovery"] is None
        judged = (await client.post("/judge", json=comparison(question="Later?"))).json()
        assert judged["verdict"] == "A"


@pytest.mark.parametrize(
    "asked",
    [
        {"all": True},
        {"since": "2020-01-01 00:00", "audits": 200, "replace": True},
        {"since": "alarm", "replace": True},
        {"since": "alarm", "audits": 200},
        {"since": "alarm", "until": "2130-01-01 00:00", "audits": 200, "replace": True},
        {"since": "alarm", "audits": 12, "replace": True},
    ],
    ids=str,
)
async def test_after_an_alarm_what_breaks_the_promise_is_refused_unless_it_is_asked_for(
    asked: dict[str, Any],
) -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        await labelled(client, range(100, 112))
        for dry_run in (True, False):
            refused = await absorbed(client, **asked, dry_run=dry_run)
            assert "200" in problem(refused, "unsafe_absorption")["detail"]
        assert await version(client) == 1
        # The number that nobody fixed is that of the monitor: 12 is not.
        few = {"audits": asked.get("audits") and 12}
        forced = await absorbed(client, **asked | few, even_if_unsafe=True, even_if_infeasible=True)
        assert forced.status_code == 200
        assert await version(client) == 2


async def test_the_number_of_a_recovery_is_fixed_in_the_trail_before_its_labels() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        begin = {"since": "alarm", "audits": 12, "begin": True}
        problem(await absorbed(client, **begin), "invalid_request")
        await alarmed(client)
        ids = await drawn(client, range(100, 115))
        assert (await monitored(client))["recovery"]["fixed"] is False
        answer = (await absorbed(client, **begin)).json()
        assert (answer["version"], answer["added"], answer["unlabelled_audits"]) == (1, 0, 12)
        # Again, and with another number.
        assert (await absorbed(client, **begin)).status_code == 200
        problem(await absorbed(client, **{**begin, "audits": 13}), "unsafe_absorption")
        recovery = (await monitored(client))["recovery"]
        assert (recovery["audits"], recovery["fixed"], recovery["drawn"]) == (12, True, 15)
        trail = (await client.get("/calibrations/default/audit-trail")).json()["entries"]
        begun = [each for each in trail if each["event"] == "recovery_begun"]
        assert [(each["audits"], each["since"]) for each in begun] == [(12, recovery["since"])]
        # Labels that are left out must not be those of one's choice.
        await send(client, dict.fromkeys(ids[:11], "A"))
        asked = {"since": "alarm", "audits": 12, "replace": True, "unlabelled": "leave_out"}
        detail = problem(await absorbed(client, **asked), "audits_incomplete")["detail"]
        assert detail.startswith("1 of the first 12 audits")
        closed = {"labels": [{"id": ids[11], "label": "none", "reason": "no text"}]}
        await client.post("/audits/labels", json=closed)
        # A newer alarm does not move the time of a recovery that has begun.
        await send(client, dict.fromkeys(await drawn(client, range(200, 230), alpha=0.2), "B"))
        now = await monitored(client)
        assert [each["alarm"] for each in now["criteria"]] == [True, True]
        assert now["recovery"]["since"] == recovery["since"]
        assert (await absorbed(client, **asked)).json()["n"] == 11
        assert (await monitored(client))["recovery"] is None


async def test_a_number_cannot_be_fixed_after_the_first_label_since_the_alarm() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        await labelled(client, range(100, 101))
        begin = {"since": "alarm", "begin": True}
        problem(await absorbed(client, **begin, audits=12), "unsafe_absorption")
        # That of the monitor was known before.
        assert (await absorbed(client, **begin, audits=200)).status_code == 200


@pytest.mark.parametrize(
    "asked",
    [
        {"all": True},
        {"since": "alarm"},
        {"since": "2020-01-01 00:00", "audits": 5},
        {"since": "alarm", "audits": 5, "dry_run": True},
    ],
    ids=str,
)
async def test_a_beginning_names_the_alarm_and_the_number(asked: dict[str, Any]) -> None:
    async with client_of() as client:
        await calibrated(client)
        refused = problem(await absorbed(client, **asked, begin=True), "invalid_request")
        assert "`begin` needs" in refused["detail"]


async def alike(client: httpx.AsyncClient, count: int) -> list[str]:
    """Judges new pairs with the scores of the labelled ones; returns the ids of their audits."""
    found: list[str] = []
    for number in range(count):
        quality = {"response_a": f"quality={4 * (number % 60 + 1) / 60}"}
        found += await drawn(client, [next(_NUMBERS)], **quality)
    return found


async def monitored(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get("/calibrations/default/monitor")).json()
    return answer


async def test_what_came_before_an_alarm_is_absorbed_with_until() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        await drawn(client, range(100, 105))
        answer = (await absorbed(client, until="alarm", even_if_unsafe=True, dry_run=True)).json()
        assert (answer["added"], answer["unlabelled_audits"]) == (30, 0)


async def test_the_newest_alarm_counts_of_audits_and_of_drift() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        first = await drawn(client, range(100), response_a="quality=0.01")
        drift = (await client.get("/calibrations/default/monitor")).json()["drift"]
        assert drift["uncertainty"]["rang_at"] is not None
        await drawn(client, range(200, 203))
        look = {"unlabelled": "leave_out", "even_if_unsafe": True, "dry_run": True}
        counted = (await absorbed(client, until="alarm", **look)).json()
        assert counted["unlabelled_audits"] == len(first)
        await labelled(client, range(300, 340), "B")
        await send(client, dict.fromkeys(first, "A"))
        ids = [each["id"] for each in (await client.get("/audits?status=open")).json()["audits"]]
        await send(client, dict.fromkeys(ids, "B"))
        monitor = (await client.get("/calibrations/default/monitor")).json()
        assert monitor["criteria"][0]["rang_at"] is not None
        await drawn(client, range(400, 402))
        later = await absorbed(client, since="alarm", **look)
        assert later.json()["unlabelled_audits"] == 2


async def test_an_alarm_that_does_not_ring_is_no_time() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        for field in ("since", "until"):
            refused = problem(await absorbed(client, **{field: "alarm"}), "invalid_request")
            assert re.search("has no active alarm: give a time", refused["detail"])
            assert refused["errors"][0]["field"] == field
