"""Tests of what an absorption says before it happens, and of what it refuses."""

import itertools
from typing import Any

import httpx

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
        # The pair of a draw is a labeled example of the next version, and is not drawn again.
        await absorbed(client)
        await client.post("/judge", json=comparison(question="Traffic 0?", alpha=0.3))
        effects = (await absorbed(client, dry_run=True)).json()["effects"]
        used = [(each["guarantee"], each["alpha"], each["delta"]) for each in effects]
        # Those of the absorbed draws, and of the judgment by this version that was not drawn.
        assert used == [("marginal", 0.1, None), ("marginal", 0.3, None)]


async def alike(client: httpx.AsyncClient, count: int) -> list[str]:
    """Judges new pairs with the scores of the labeled ones; returns the ids of their audits."""
    found: list[str] = []
    for number in range(count):
        quality = {"response_a": f"quality={4 * (number % 60 + 1) / 60}"}
        found += await drawn(client, [next(_NUMBERS)], **quality)
    return found


async def monitored(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get("/calibrations/default/monitor")).json()
    return answer


async def test_after_an_alarm_the_first_audits_since_then_replace_all_examples() -> None:
    async with client_of(audit_rate=1.0, on_alarm="abstain") as client:
        await calibrated(client)
        assert (await monitored(client))["recovery"] is None
        await send(client, dict.fromkeys(await alike(client, 60), "B"))
        recovery = (await monitored(client))["recovery"]
        # It follows from alpha and guarantee alone, and is in the trail from the beginning.
        assert (recovery["alpha"], recovery["guarantee"]) == (0.1, "marginal")
        assert (recovery["audits"], recovery["drawn"], recovery["labelled"]) == (200, 0, 0)
        trail = (await client.get("/calibrations/default/audit-trail")).json()["entries"]
        assert [each["audits"] for each in trail if each["event"] == "alarm"] == [200]
        # Suspended judgments are drawn, so the audits are a sample of all traffic.
        suspended = (await client.post("/judge", json=comparison(question="Now?"))).json()
        assert suspended["reason"] == "suspended"
        await send(client, dict.fromkeys(await alike(client, 190), "A"))
        detail = problem(await absorbed(client, dry_run=True), "audits_incomplete")["detail"]
        assert "has 191 audits since its first alarm so far, and needs 200" in detail
        rest = await alike(client, 9)
        detail = problem(await absorbed(client), "audits_incomplete")["detail"]
        assert detail.startswith("10 of the first 200 audits")
        await send(client, {suspended["audit"]["id"]: "A"})
        await send(client, dict.fromkeys(rest, "A"))
        # Later draws do not count, labeled or not.
        await send(client, dict.fromkeys((await alike(client, 5))[:3], "B"))
        would = (await absorbed(client, dry_run=True)).json()
        assert [each["after"]["feasible"] for each in would["effects"]] == [True]
        assert [would[name] for name in ("n", "replaced", "removed")] == [200, True, 60]
        done = (await absorbed(client)).json()
        assert {**done, "dry_run": True, "version": 1} == would
        assert (await monitored(client))["recovery"] is None
        judged = (await client.post("/judge", json=comparison(question="Later?"))).json()
        assert judged["verdict"] == "A"
        # Later audits are added; those from before the alarm never come back.
        assert (await absorbed(client)).json()["added"] == 3


async def test_a_second_alarm_moves_neither_the_number_nor_its_begin() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        await drawn(client, range(100, 115))
        before = (await monitored(client))["recovery"]
        await send(client, dict.fromkeys(await drawn(client, range(200, 230), alpha=0.05), "B"))
        now = await monitored(client)
        assert len([each for each in now["criteria"] if each["alarm"]]) == 2
        assert now["recovery"]["since"] == before["since"]
        assert (now["recovery"]["audits"], now["recovery"]["drawn"]) == (200, 45)


async def test_without_an_alarm_the_audits_up_to_the_first_open_one_are_added() -> None:
    async with client_of(audit_rate=1.0) as client:
        await calibrated(client)
        one, two, three, four = await drawn(client, range(4))
        await send(client, {one: "A", four: "A"})
        closed = {"labels": [{"id": two, "label": "none", "reason": "no text"}]}
        await client.post("/audits/labels", json=closed)
        answer = (await absorbed(client)).json()
        shown = ("added", "removed", "replaced", "unlabelled_audits", "waiting")
        assert [answer[name] for name in shown] == [1, 0, False, 1, 1]
        await send(client, {three: "tie"})
        answer = (await absorbed(client)).json()
        assert [answer[name] for name in ("added", "updated", "ties", "waiting")] == [1, 1, 1, 0]


async def test_audits_from_before_a_resume_are_not_absorbed() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        await client.post("/calibrations/default/resume", json={"reason": "labels were mixed up"})
        await labelled(client, range(100, 105))
        assert (await absorbed(client)).json()["added"] == 5


async def test_an_absorption_that_ends_all_verdicts_is_refused_unless_it_is_asked_for() -> None:
    for even_if_infeasible in (False, True):
        async with client_of(audit_rate=1.0) as client:
            await alarmed(client)
            await labelled(client, range(100, 300), "B")
            would = (await absorbed(client, dry_run=True)).json()
            assert would["effects"][0]["becomes_infeasible"]
            answer = await absorbed(client, even_if_infeasible=even_if_infeasible)
            if even_if_infeasible:
                assert answer.json()["effects"][0]["becomes_infeasible"]
            else:
                refused = problem(answer, "becomes_infeasible")
                assert "alpha 0.1 (marginal)" in refused["detail"]
            assert await version(client) == 1 + even_if_infeasible
