"""The queue of a set: blind pairs with leases, answers that count once, and skips."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.keys import Keys
from app.core.comparison import Comparison
from app.core.fingerprint import example_digest
from app.ports import Lease
from app.stores.memory import MemoryStore
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import calibrated, comparison, problem
from tests.unit.api.test_audits import ISO, drawn, listed, send

QUEUE = "/calibrations/default/queue"
SHOWN = {
    "ticket",
    "question",
    "left",
    "right",
    "digest",
    "is_pooled",
    "left_is_first",
    "leased_until",
}
STATE = {"open", "disagreements", "leased", "without_texts", "words"}


class AgeingStore(MemoryStore):
    """A store whose leases a test can end."""

    def pass_time(self, seconds: float) -> None:
        self._leases = {
            place: Lease(holder=lease.holder, until=lease.until - seconds)
            for place, lease in self._leases.items()
        }


@asynccontextmanager
async def drawing(
    store: MemoryStore | None = None, **given: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A service that draws every judgment and keeps its texts."""
    settings = {"audit_rate": 1.0, "audit_texts": True, **given}
    async with client_of(store=store, **settings) as client:
        if given.get("keys") is not None:
            client.headers.update(header_of("all"))
        await calibrated(client)
        yield client


async def take(client: httpx.AsyncClient, reviewer: str = "anna", count: int = 1) -> Any:
    response = await client.post(QUEUE, json={"take": count, "reviewer": reviewer})
    assert response.status_code == 200, response.text
    return response.json()


async def taken(client: httpx.AsyncClient, reviewer: str = "anna", count: int = 1) -> list[str]:
    """The questions of the pairs that a person gets."""
    return [pair["question"] for pair in (await take(client, reviewer, count))["pairs"]]


async def tickets(client: httpx.AsyncClient, reviewer: str = "anna", count: int = 5) -> list[str]:
    return [pair["ticket"] for pair in (await take(client, reviewer, count))["pairs"]]


async def give(client: httpx.AsyncClient, reviewer: str, *answers: tuple[str, str]) -> Any:
    rows = [
        {"ticket": ticket, "choice": choice, **({"reason": "too long"} if choice == "none" else {})}
        for ticket, choice in answers
    ]
    body = {"reviewer": reviewer, "answers": rows}
    response = await client.post(f"{QUEUE}/answers", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def counts(client: httpx.AsyncClient, reviewer: str, *answers: tuple[str, str]) -> Any:
    """The numbers of labelled, corrected and repeated answers, and the codes of all errors."""
    found = await give(client, reviewer, *answers)
    assert set(found) == STATE | {"labelled", "corrected", "again", "errors"}
    codes = {each["index"]: each["error"]["code"] for each in found["errors"]}
    return found["labelled"], found["corrected"], found["again"], codes


async def release(client: httpx.AsyncClient, reviewer: str, *given: str) -> Any:
    body = {"reviewer": reviewer, "tickets": list(given)}
    response = await client.post(f"{QUEUE}/release", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_pair_is_shown_with_its_texts_and_nothing_of_the_judge() -> None:
    async with drawing() as client:
        (audit,) = await drawn(client, [1])
        found = await take(client)
        assert set(found) == STATE | {"pairs", "texts"}
        (pair,) = found.pop("pairs")
        assert found == {
            "open": 1,
            "disagreements": 0,
            "leased": 1,
            "without_texts": 0,
            "texts": "kept",
            "words": "1 pair waits.",
        }
        assert set(pair) == SHOWN
        assert pair["question"] == "Traffic 1?"
        assert {pair["left"], pair["right"]} == {"quality=3.9", "quality=0"}
        assert re.fullmatch(ISO, pair["leased_until"])
        assert re.fullmatch(rf"{audit}\.[AB]\.[0-9a-f]{{32}}", pair["ticket"])


async def test_sides_are_random_for_each_pair_and_fixed() -> None:
    store = AgeingStore()
    async with drawing(store) as client:
        await drawn(client, range(60))
        sides = dict[str, str]()
        for number in range(12):
            for pair in (await take(client, f"person-{number}", 5))["pairs"]:
                sides[pair["question"]] = pair["left"]
        assert len(sides) == 60
        # 60 coins show fewer than 13 heads with probability 0.000003.
        assert 12 < list(sides.values()).count("quality=0") < 48
        store.pass_time(601)
        for number in range(12):
            for pair in (await take(client, f"other-{number}", 5))["pairs"]:
                assert sides.pop(pair["question"]) == pair["left"]
        assert not sides


async def test_the_label_is_that_of_the_side_that_was_chosen() -> None:
    async with drawing() as client:
        await drawn(client, range(8))
        expected = dict[str, str]()
        for _ in range(8):
            (pair,) = (await take(client))["pairs"]
            choice = "left" if pair["left"] == "quality=3.9" else "right"
            assert (await counts(client, "anna", (pair["ticket"], choice)))[0] == 1
            expected[pair["ticket"].partition(".")[0]] = "A"
        audits = (await listed(client))["audits"]
        assert {each["id"]: each["label"] for each in audits} == expected
        assert {each["labelled_by"] for each in audits} == {"anna@anonymous"}


async def test_two_people_never_get_the_same_pair() -> None:
    async with drawing() as client:
        await drawn(client, range(7))
        one, two = await asyncio.gather(taken(client, "anna", 5), taken(client, "ben", 5))
        assert sorted(one + two) == [f"Traffic {number}?" for number in range(7)]
        assert len({*one, *two}) == 7
        found = await take(client, "cem")
        assert (found["pairs"], found["open"], found["leased"]) == ([], 7, 7)


async def test_asking_again_gives_the_same_pairs_and_a_lease_comes_back_by_itself() -> None:
    store = AgeingStore()
    async with drawing(store) as client:
        await drawn(client, range(4))
        first = await taken(client, "anna", 2)
        assert first == ["Traffic 0?", "Traffic 1?"]
        assert await taken(client, "anna", 2) == first
        assert await taken(client, "anna", 3) == [*first, "Traffic 2?"]
        assert await taken(client, "ben", 5) == ["Traffic 3?"]
        store.pass_time(500)
        # Asking begins the leases anew.
        assert await taken(client, "anna", 1) == ["Traffic 0?"]
        store.pass_time(101)
        assert await taken(client, "ben", 5) == ["Traffic 1?", "Traffic 2?", "Traffic 3?"]


async def test_answers_count_once_and_the_same_person_may_correct_them() -> None:
    async with drawing() as client:
        await drawn(client, range(3))
        one, two, three = await tickets(client)
        assert await counts(client, "anna", (one, "left"), (two, "tie")) == (2, 0, 0, {})
        assert await counts(client, "anna", (one, "left"), (two, "tie")) == (0, 0, 2, {})
        assert await counts(client, "anna", (one, "right"), (three, "none")) == (1, 1, 0, {})
        assert await counts(client, "anna", (three, "none")) == (0, 0, 1, {})
        assert await counts(client, "anna", (two, "left"), (two, "tie")) == (0, 0, 2, {})
        statuses = [each["status"] for each in (await listed(client))["audits"]]
        assert statuses == ["labelled", "labelled", "closed"]
        found = await take(client)
        assert (found["pairs"], found["open"], found["leased"]) == ([], 0, 0)
        assert found["words"] == "No pairs wait."


async def test_an_answer_ends_its_lease() -> None:
    async with drawing() as client:
        await drawn(client, range(2))
        one, two = await tickets(client)
        found = await give(client, "anna", (one, "left"))
        assert (found["open"], found["leased"], found["words"]) == (1, 1, "1 pair waits.")
        found = await give(client, "anna", (two, "left"))
        assert (found["open"], found["leased"]) == (0, 0)


async def test_a_lease_that_has_passed_on_counts_until_somebody_else_has_answered() -> None:
    store = AgeingStore()
    async with drawing(store) as client:
        await drawn(client, range(2))
        mine = await tickets(client, "anna")
        store.pass_time(601)
        assert await tickets(client, "ben") == mine
        one, two = mine
        # Ben has the lease, and Anna is first.
        assert await counts(client, "anna", (one, "left")) == (1, 0, 0, {})
        late = await counts(client, "ben", (one, "left"), (two, "left"))
        assert late == (1, 0, 0, {0: "already_labelled"})
        for choice in ("left", "right", "tie", "none"):
            refused = await counts(client, "anna", (two, choice))
            assert refused == (0, 0, 0, {0: "already_labelled"})
        assert [each["labelled_by"] for each in (await listed(client))["audits"]] == [
            "anna@anonymous",
            "ben@anonymous",
        ]


async def test_a_label_of_audits_labels_stays_and_may_replace_one_of_the_queue() -> None:
    async with drawing() as client:
        first, second = await drawn(client, range(2))
        one, two = await tickets(client)
        await send(client, {first: "A"})
        assert await counts(client, "anna", (one, "left"), (two, "left")) == (
            *(1, 0, 0),
            {0: "already_labelled"},
        )
        assert (await send(client, {second: "tie"})).json()["updated"] == 1
        assert await counts(client, "anna", (two, "left")) == (0, 0, 0, {0: "already_labelled"})
        assert [each["label"] for each in (await listed(client))["audits"]] == ["A", "tie"]


async def test_a_skipped_pair_comes_last_for_this_person_until_his_lease_would_end() -> None:
    store = AgeingStore()
    async with drawing(store) as client:
        await drawn(client, range(4))
        first, second = await tickets(client, count=2)
        found = await release(client, "anna", first)
        assert (found["released"], found["open"], found["leased"]) == (1, 4, 1)
        assert (await release(client, "anna", first))["released"] == 0
        await release(client, "anna", second)
        assert await taken(client, "anna", 3) == ["Traffic 2?", "Traffic 3?", "Traffic 0?"]
        assert await taken(client, "ben") == ["Traffic 1?"]
        store.pass_time(601)
        assert await taken(client, "anna") == ["Traffic 0?"]


async def test_releasing_the_pair_of_somebody_else_takes_nothing_from_him() -> None:
    async with drawing() as client:
        await drawn(client, [0])
        (ticket,) = await tickets(client, "anna")
        found = await release(client, "ben", ticket)
        assert (found["released"], found["leased"]) == (0, 1)
        assert await taken(client, "ben") == []
        assert await taken(client, "anna") == ["Traffic 0?"]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x" * 200,
        "0" * 32 + ".A." + "0" * 32,
        "{audit}.{side}." + "0" * 32,
        "{audit}.{other}.{seal}",
        "{mirrored}.{side}.{seal}",
        "{audit}.{side}.{seal} ",
        "{audit}",
    ],
)
async def test_a_ticket_that_the_queue_has_not_given_is_an_error_in_its_place(wrong: str) -> None:
    async with drawing() as client:
        await drawn(client, range(2))
        one, two = await tickets(client)
        audit, side, seal = one.split(".")
        text = wrong.format(
            audit=audit,
            side=side,
            seal=seal,
            other="B" if side == "A" else "A",
            mirrored=f"{int(audit, 16) ^ 1:032x}",
        )
        assert await counts(client, "anna", (text, "left"), (two, "left")) == (
            *(1, 0, 0),
            {0: "invalid_request"},
        )
        refused = [each["label"] for each in (await listed(client))["audits"]]
        assert refused[0] is None
        assert refused[1] is not None


async def test_a_ticket_of_another_set_is_an_error_in_its_place() -> None:
    async with drawing() as client:
        body = {"examples": [{**comparison(question="Other?"), "label": "A"}] * 1}
        (await client.post("/calibrate", json={**body, "calibration": "other"})).raise_for_status()
        await drawn(client, [0])
        (ticket,) = await tickets(client)
        answer = {"answers": [{"ticket": ticket, "choice": "left"}]}
        found = (await client.post("/calibrations/other/queue/answers", json=answer)).json()
        assert [each["error"]["code"] for each in found["errors"]] == ["invalid_request"]
        assert (found["labelled"], found["open"]) == (0, 0)
        assert (await listed(client, "?status=open"))["audits"]
        assert (await client.post("/calibrations/other/queue", json={"take": 5})).json()[
            "pairs"
        ] == []


async def test_an_expired_audit_takes_no_answer() -> None:
    store = MemoryStore()
    async with drawing(store) as client:
        await drawn(client, [0])
        (ticket,) = await tickets(client)
    async with drawing(store, audit_expires_s=1e-9) as client:
        assert (await take(client))["open"] == 0
        assert await counts(client, "anna", (ticket, "left")) == (0, 0, 0, {0: "invalid_request"})


async def test_audits_without_texts_are_counted_and_not_shown() -> None:
    store = MemoryStore()
    async with drawing(store, audit_texts=False) as client:
        await drawn(client, range(3))
        found = await take(client, count=5)
        assert (found["pairs"], found["texts"]) == ([], "off")
        assert (found["open"], found["without_texts"]) == (0, 3)
    async with drawing(store) as client:
        await drawn(client, range(3, 5))
        found = await take(client, count=5)
        assert [pair["question"] for pair in found["pairs"]] == ["Traffic 3?", "Traffic 4?"]
        assert (found["texts"], found["open"], found["without_texts"]) == ("kept", 2, 3)
        assert found["words"] == "5 pairs wait."


async def test_whoever_has_the_texts_of_a_pair_takes_it_by_its_digest() -> None:
    store = MemoryStore()
    async with drawing(store, audit_texts=False) as client:
        # Both orders of the responses, and equal responses.
        texts = [("quality=3", "quality=0"), ("quality=-4", "quality=2"), ("same", "same")]
        pairs = [
            comparison(question=f"Pair {number}?", response_a=a, response_b=b)
            for number, (a, b) in enumerate(texts)
        ]
        results = (await client.post("/judge/batch", json={"comparisons": pairs})).json()["results"]
        audits = [each["audit"]["id"] for each in results]
    async with drawing(store) as client:
        await drawn(client, [7])
        answer = (await client.get(f"{QUEUE}/textless")).json()
        assert (len(answer["digests"]), answer["total"]) == (3, 3)
        fingerprint = answer["fingerprint"]
        assert fingerprint == (await client.get("/info")).json()["fingerprint"]
        digests = [
            example_digest(fingerprint, Comparison.of(f"Pair {number}?", a, b))
            for number, (a, b) in enumerate(texts)
        ]
        assert answer["digests"] == digests
        body = {"take": 5, "reviewer": "anna", "digests": [*digests, "0" * 64]}
        found = (await client.post(QUEUE, json=body)).json()
        *named, kept = found["pairs"]
        assert (kept["question"], kept["digest"]) == ("Traffic 7?", None)
        assert kept["left_is_first"] == (kept["left"] < kept["right"])
        assert [pair["digest"] for pair in named] == digests
        assert (found["open"], found["without_texts"], found["words"]) == (1, 3, "4 pairs wait.")
        for pair, (a, b), audit in zip(named, texts, audits, strict=True):
            assert (pair["question"], pair["left"], pair["right"]) == (None, None, None)
            left = min(a, b) if pair["left_is_first"] else max(a, b)
            assert await counts(client, "anna", (pair["ticket"], "left")) == (1, 0, 0, {})
            labels = {each["id"]: each["label"] for each in (await listed(client))["audits"]}
            assert left == {"A": a, "B": b}[labels[audit]]
        assert (await client.get(f"{QUEUE}/textless")).json()["total"] == 0


async def test_two_people_with_one_file_get_different_pairs() -> None:
    store = MemoryStore()
    async with drawing(store, audit_texts=False) as client:
        await drawn(client, range(4))
        digests = (await client.get(f"{QUEUE}/textless")).json()["digests"]
        got = [
            (await client.post(QUEUE, json={"take": 2, "reviewer": who, "digests": digests})).json()
            for who in ("anna", "ben")
        ]
        assert [[pair["digest"] for pair in each["pairs"]] for each in got] == [
            digests[:2],
            digests[2:],
        ]


async def test_texts_of_another_program_keep_nobody_from_the_other_pairs() -> None:
    store = MemoryStore()
    async with drawing(store) as client:
        await drawn(client, range(3))
        store._texts[next(iter(store._texts))] = "{}"
        assert await taken(client) == []
        assert await taken(client, count=5) == ["Traffic 1?", "Traffic 2?"]


async def test_a_conversation_is_shown_as_text() -> None:
    turns = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "quality=1"},
        {"role": "user", "content": "<script>alert(1)</script> ‮ \x00"},
    ]
    fields = {"question": turns, "response_a": ["quality=3", "x"], "response_b": ["quality=0", "y"]}
    async with drawing() as client:
        (await client.post("/judge", json=fields)).raise_for_status()
        (pair,) = (await take(client))["pairs"]
        assert pair["question"].startswith(
            "[user]\n1?\n\n[assistant]\nquality=1\n\n[user]\n<script>"
        )
        assert {pair["left"], pair["right"]} == {
            "[answer 1]\nquality=3\n\n[answer 2]\nx",
            "[answer 1]\nquality=0\n\n[answer 2]\ny",
        }
        assert await counts(client, "anna", (pair["ticket"], "tie")) == (1, 0, 0, {})


async def test_the_words_say_how_many_labels_an_alarm_needs() -> None:
    async with drawing() as client:
        pairs = [
            comparison(question=f"A{i}?", response_a=f"quality={2 + i / 100}") for i in range(60)
        ]
        results = (await client.post("/judge/batch", json={"comparisons": pairs})).json()["results"]
        await send(client, {each["audit"]["id"]: "B" for each in results})
        assert (await client.get("/calibrations/default/monitor")).json()["alarm"]
        await drawn(client, range(3))
        words = (await take(client))["words"]
        assert words == "3 pairs wait; 200 more labels until the alarm can be lifted."
        (ticket,) = await tickets(client, count=1)
        found = await give(client, "anna", (ticket, "left"))
        assert found["words"] == "2 pairs wait; 199 more labels until the alarm can be lifted."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {}),
        ("", {"take": 0}),
        ("", {"take": 6}),
        ("", {"take": 1.0}),
        ("", {"take": 1, "reviewer": ""}),
        ("", {"take": 1, "reviewer": "an@na"}),
        ("", {"take": 1, "reviewer": "a/b"}),
        ("", {"take": 1, "more": 1}),
        ("/answers", {"answers": []}),
        ("/answers", {"answers": [{"ticket": "x", "choice": "A"}]}),
        ("/answers", {"answers": [{"ticket": "x", "choice": "none"}]}),
        ("/answers", {"answers": [{"ticket": "x", "choice": "none", "reason": " "}]}),
        ("/answers", {"answers": [{"ticket": "x", "choice": "left", "reason": "y"}]}),
        ("/answers", {"answers": [{"ticket": "x" * 201, "choice": "left"}]}),
        ("/answers", {"answers": [{"ticket": "x", "choice": "left"}] * 21}),
        ("/release", {"tickets": []}),
        ("/release", {"tickets": ["x"] * 21}),
        ("/release", {"tickets": ["x"]}),
    ],
)
async def test_a_request_out_of_range_is_refused(path: str, body: Any) -> None:
    async with drawing() as client:
        problem(await client.post(QUEUE + path, json=body), "invalid_request")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"take": 1}),
        ("/answers", {"answers": [{"ticket": "x", "choice": "left"}]}),
        ("/release", {"tickets": ["0" * 32 + ".A." + "0" * 32]}),
    ],
)
async def test_a_missing_set_is_404(path: str, body: Any) -> None:
    async with client_of() as client:
        problem(await client.post(QUEUE + path, json=body), "calibration_not_found")


async def test_a_key_labels_its_sets_under_its_name_or_that_of_a_person(tmp_path: Path) -> None:
    entries = (
        entry("all", ["judge", "calibrate"]),
        entry("lab", ["label"], ["default"]),
        entry("other", ["label"], ["other"]),
    )
    keys = Keys(write_keys(tmp_path / "keys.json", *entries))
    async with drawing(keys=keys) as client:
        await drawn(client, range(2))
        problem(await client.post(QUEUE, json={"take": 1}), "forbidden")
        problem(await client.post(QUEUE, json={"take": 1}, headers=header_of("other")), "forbidden")
        client.headers.update(header_of("lab"))
        (pair,) = (await client.post(QUEUE, json={"take": 1})).json()["pairs"]
        answers = {"answers": [{"ticket": pair["ticket"], "choice": "left"}]}
        assert (await client.post(f"{QUEUE}/answers", json=answers)).json()["labelled"] == 1
        # The name of the key is the same person.
        again = {**answers, "reviewer": "lab"}
        assert (await client.post(f"{QUEUE}/answers", json=again)).json()["again"] == 1
        (ticket,) = await tickets(client, "anna")
        assert await counts(client, "anna", (ticket, "tie")) == (1, 0, 0, {})
        by = [x["labelled_by"] for x in (await listed(client, headers=header_of("all")))["audits"]]
        assert by == ["lab", "anna@lab"]


async def test_no_text_and_no_ticket_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with drawing() as client:
        await client.post("/judge", json=comparison(question="a secret question"))
        (pair,) = (await take(client))["pairs"]
        answer = {"ticket": pair["ticket"], "choice": "none", "reason": "a secret reason"}
        for _ in range(2):
            await client.post(f"{QUEUE}/answers", json={"answers": [answer], "reviewer": "anna"})
        await client.post(f"{QUEUE}/answers", json={"answers": [answer], "reviewer": "ben"})
        await release(client, "anna", pair["ticket"])
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("app")]
    assert any("anna@anonymous" in line for line in ours)
    assert "secret" not in json.dumps(ours)
    assert pair["ticket"] not in caplog.text
