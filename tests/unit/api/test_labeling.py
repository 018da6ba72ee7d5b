"""People label audits over HTTP: blind, in an own order, and the first label of a pair counts."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.keys import Keys
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import calibrated, comparison, problem
from tests.unit.api.test_audits import drawn, listed, send


async def to_label(client: httpx.AsyncClient, query: str = "", who: str | None = None) -> Any:
    headers = None if who is None else header_of(who)
    response = await client.get(f"/audits?texts=true{query}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def order_of(client: httpx.AsyncClient, who: str) -> list[str]:
    """The questions that a person labels, in order, from all pages."""
    questions = list[str]()
    after: int | None = 0
    while after is not None:
        page = await to_label(client, f"&after={after}", who)
        assert len(page["audits"]) <= 20
        questions += [audit["texts"]["question"] for audit in page["audits"]]
        after = page["next_after"]
    return questions


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A service with keys that keeps texts, as its owner uses it."""
    entries = (
        entry("owner", ["judge", "calibrate", "admin"]),
        entry("ann", ["label"]),
        entry("ben", ["calibrate", "label"]),
        entry("judge", ["judge"]),
        entry("other", ["label"], ["other"]),
    )
    keys = Keys(write_keys(tmp_path / "keys.json", *entries))
    async with client_of(keys=keys, audit_rate=1.0, audit_texts=True) as client:
        client.headers.update(header_of("owner"))
        await calibrated(client)
        yield client


async def labels(client: httpx.AsyncClient) -> list[tuple[str | None, str | None]]:
    """Label and labeler of each audit, oldest first."""
    audits = (await listed(client))["audits"]
    return [(audit["label"], audit["labelled_by"]) for audit in audits]


async def test_who_labeled_first_can_correct_it_and_so_can_an_admin(
    client: httpx.AsyncClient,
) -> None:
    (one,) = await drawn(client, range(1))
    await send(client, {one: "A"}, header_of("ann"))
    assert (await send(client, {one: "B"}, header_of("ann"))).json()["updated"] == 1
    assert (await send(client, {one: "tie"})).json()["updated"] == 1
    assert await labels(client) == [("tie", "owner")]
    assert (await send(client, {one: "A"}, header_of("ann"))).json()["updated"] == 0
    trail = (await client.get("/calibrations/default/audit-trail")).json()["entries"]
    assert [(each["by"], each["before"], each["after"]) for each in trail] == [
        ("owner", "B", "tie"),
        ("ann", "A", "B"),
    ]


async def test_the_role_label_sees_texts_and_sides_and_no_verdict(
    client: httpx.AsyncClient,
) -> None:
    fields = comparison(question="Which?")
    judgment = (await client.post("/judge", json=fields)).json()
    page = await to_label(client, who="ann")
    assert (page["open"], page["without_texts"], page["next_after"]) == (1, 0, None)
    (audit,) = page["audits"]
    assert set(audit) == {
        *("id", "calibration", "status", "rate", "drawn_at", "drawn_by", "expires_at"),
        *("label", "labelled_at", "labelled_by", "texts"),
    }
    assert int(audit["id"], 16) >> 1 == int(judgment["audit"]["id"], 16) >> 1
    assert set(audit["texts"].values()) == {
        fields[name] for name in ("question", "response_a", "response_b")
    }


async def test_only_a_key_that_may_label_reads_texts(client: httpx.AsyncClient) -> None:
    (one,) = await drawn(client, range(1), response_a="quality=1 secret")
    refused = await client.get("/audits?texts=true", headers=header_of("judge"))
    assert "'label'" in problem(refused, "forbidden")["detail"]
    problem(await send(client, {one: "A"}, header_of("judge")), "forbidden")
    assert (await to_label(client, who="other"))["audits"] == []
    of_set = await client.get("/audits?texts=true&calibration=default", headers=header_of("other"))
    problem(of_set, "forbidden")
    problem(await send(client, {one: "A"}, header_of("other")), "forbidden")
    for path in ("/audits", "/calibrations/default/audit-trail", "/info"):
        assert "secret" not in (await client.get(path)).text


async def test_everybody_labels_the_oldest_pairs_in_an_own_order(
    client: httpx.AsyncClient,
) -> None:
    for start in range(0, 80, 20):
        await drawn(client, range(start, start + 20))
    oldest = {f"Traffic {number}?" for number in range(64)}
    ann, ben = [await order_of(client, who) for who in ("ann", "ben")]
    assert set(ann) == set(ben) == oldest
    assert ann == await order_of(client, "ann")
    # Two people who begin at once seldom label the same pair: about one of ten.
    assert len(set(ann[:10]) & set(ben[:10])) < 6
    assert ann != [f"Traffic {number}?" for number in range(64)]
    page = await to_label(client, who="ann")
    assert page["open"] == 80
    await send(client, {page["audits"][0]["id"]: "tie"}, header_of("ann"))
    assert set(await order_of(client, "ben")) - oldest == {"Traffic 64?"}


async def test_sides_are_random_and_a_label_means_the_side_that_was_shown(
    client: httpx.AsyncClient,
) -> None:
    ids = await drawn(client, range(20))
    first, swapped = comparison(), 0
    for audit in (await to_label(client, who="ann"))["audits"]:
        is_a = audit["texts"]["response_a"] == first["response_a"]
        assert (audit["id"] in ids) == is_a
        swapped += not is_a
        # Prefers the response that was judged as A.
        await send(client, {audit["id"]: "A" if is_a else "B"}, header_of("ann"))
    assert 4 <= swapped <= 16
    assert await labels(client) == [("A", "ann")] * 20


async def monitored(client: httpx.AsyncClient) -> Any:
    return (await client.get("/calibrations/default/monitor")).json()


async def test_after_an_alarm_people_label_the_pairs_that_end_it_first(
    client: httpx.AsyncClient,
) -> None:
    wrong = dict.fromkeys(await drawn(client, range(30)), "B")
    await drawn(client, range(1000, 1005))
    await send(client, wrong)
    needed = (await monitored(client))["recovery"]["audits"]
    before = {f"Traffic {number}?" for number in range(1000, 1005)}
    assert set(await order_of(client, "ann")) == before
    await drawn(client, range(2000, 2003 + needed))
    ending = {f"Traffic {number}?" for number in range(2000, 2000 + needed)}
    after = {f"Traffic {number}?" for number in range(2000 + needed, 2003 + needed)}
    assert set(await order_of(client, "ann")) == ending
    while (page := await to_label(client))["open"] > len(before | after):
        await send(client, {audit["id"]: "tie" for audit in page["audits"][:-1]})
        await send(client, {page["audits"][-1]["id"]: "A"})
    assert set(await order_of(client, "ann")) == before | after
    await client.post("/calibrations/default/absorb", json={"even_if_infeasible": True})
    assert set(await order_of(client, "ann")) == after


async def test_after_an_alarm_was_ended_the_desk_shows_what_the_monitor_waits_for(
    client: httpx.AsyncClient,
) -> None:
    wrong = dict.fromkeys(await drawn(client, range(30)), "B")
    await drawn(client, range(1000, 1005))
    held_up = await drawn(client, range(2000, 2002), alpha=0.3)
    await send(client, wrong)
    assert (await monitored(client))["alarm"]
    await send(client, {held_up[1]: "A"})
    await client.post("/calibrations/default/resume", json={"reason": "A wrong guide."})
    rows = (await monitored(client))["criteria"]
    assert {row["alpha"]: row["open"] for row in rows} == {0.1: 0, 0.3: 1}
    assert (await to_label(client))["open"] == 1
    assert await order_of(client, "ann") == ["Traffic 2000?"]
