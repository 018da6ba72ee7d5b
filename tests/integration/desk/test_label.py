"""People label audits on the desk: blind, by keyboard, and without a lost answer."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.integration.desk.browsing import (
    FORMS,
    HOSTILE,
    barriers,
    look_in,
    open_page,
    overflow,
    shown,
)
from tests.integration.desk.worlds import SETTINGS, calibrate, judged, pairs
from tests.integration.processes.server import Server
from tests.unit.api.keyring import entry, header_of, key_of, write_keys

LABELED = 20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """A service with 30 open audits, in a file that outlives a kill."""
    settings = {
        **SETTINGS,
        "SCOPE_AUDIT_TEXTS": "on",
        "SCOPE_STORE_URL": f"sqlite:///{tmp_path}/store.db",
    }
    with Server(tmp_path, settings) as server:
        calibrate(server.client, "default", pairs(100, start=0))
        judged(server.client, "default", pairs(30, start=1000))
        yield server


def open_audits(service: Server) -> dict[str, dict[str, Any]]:
    """Question -> open audit with its texts."""
    found: dict[str, dict[str, Any]] = {}
    after: int | None = 0
    while after is not None:
        answer = service.client.get(f"/audits?texts=true&after={after}").raise_for_status()
        page = answer.json()
        found |= {audit["texts"]["question"]: audit for audit in page["audits"]}
        after = page["next_after"]
    return found


def in_one_order(labels: dict[str, str | None]) -> dict[int, str]:
    """Pair -> label, in the same of its two orders whichever its id names; without open pairs."""
    turned = {"A": "B", "B": "A"}
    numbers = {int(identifier, 16): label for identifier, label in labels.items() if label}
    return {
        number >> 1: turned.get(label, label) if number % 2 else label
        for number, label in numbers.items()
    }


def labels_of(service: Server) -> dict[int, str]:
    audits = service.client.get("/audits?limit=1000").raise_for_status().json()["audits"]
    return in_one_order({audit["id"]: audit["label"] for audit in audits})


def press(page: Page, key: str) -> str:
    """Presses a key and waits for another pair; returns the question of the one before."""
    question, _ = shown(page)
    page.keyboard.press(key)
    expect(page.get_by_role("region", name="Question")).not_to_have_text(question)
    return question


def send(page: Page) -> None:
    """Sends the answer to the last pair of the queue."""
    with page.expect_response(lambda answer: answer.url.endswith("/audits/labels")):
        page.get_by_role("button", name="Send it").click()
    expect(page.get_by_text("No pair waits for your label")).to_be_visible()


def test_pairs_labeled_by_keyboard_are_exactly_the_labels_of_the_service(
    service: Server, browser: Browser
) -> None:
    audits = open_audits(service)
    expected: dict[str, str | None] = {}
    with open_page(browser, service.url) as page:
        page.goto("/desk#label/default")
        for number in range(LABELED):
            question, left = shown(page)
            is_a = audits[question]["texts"]["response_a"] == left
            key = "12t"[number % 3]
            if number == 5:
                # Taken back before it was sent, and answered anew.
                press(page, "2" if key == "1" else "1")
                page.keyboard.press("u")
                expect(page.get_by_role("region", name="Question")).to_have_text(question)
            press(page, key)
            expected[audits[question]["id"]] = {
                "1": "A" if is_a else "B",
                "2": "B" if is_a else "A",
                "t": "tie",
            }[key]
        skipped = press(page, "s")
        question, _ = shown(page)
        page.keyboard.press("n")
        reason = page.get_by_role("dialog").get_by_label("Reason")
        # No key answers while somebody types.
        reason.press_sequentially("12 turns, t")
        assert shown(page)[0] == question
        reason.press("Enter")
        expect(page.get_by_role("region", name="Question")).not_to_have_text(question)
        expected[audits[question]["id"]] = "none"
        # The last answer is sent when the view is left.
        with page.expect_response(lambda answer: "12 turns" in (answer.request.post_data or "")):
            page.get_by_role("link", name="Try").click()
        expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()
    assert labels_of(service) == in_one_order(expected)
    assert skipped in open_audits(service)


def test_a_skipped_pair_comes_back_after_all_others(service: Server, browser: Browser) -> None:
    with open_page(browser, service.url) as page:
        page.goto("/desk#label/default")
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        skipped = press(page, "s")
        seen = [press(page, "1") for _ in range(29)]
        assert skipped not in seen
        assert len(set(seen)) == 29
        assert shown(page)[0] == skipped
        page.get_by_role("link", name="Try").click()
        expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()


def test_an_alarm_is_shown_although_labels_come_faster_than_the_answer(
    service: Server, browser: Browser
) -> None:
    with open_page(browser, service.url) as page:
        held: list[Route] = []
        page.route("**/monitor", lambda route: held.append(route))
        with page.expect_request("**/monitor"):
            page.goto("/desk#label/default")
        press(page, "1")
        press(page, "1")
        expect(page.get_by_text("29 pairs wait")).to_be_visible()
        held[0].fulfill(json={"name": "default", "light": "red", "recovery": None})
        expect(page.get_by_text("the traffic of default has changed")).to_be_visible()
        page.unroute_all(behavior="ignoreErrors")


def test_a_killed_service_loses_no_answer_that_it_has_taken(
    service: Server, browser: Browser
) -> None:
    url = service.url
    with open_page(browser, url, fine=frozenset(), refused=True) as page:
        page.goto("/desk#label/default")
        # The service has taken one answer at least.
        with page.expect_response(lambda answer: answer.url.endswith("/audits/labels")):
            for _ in range(3):
                press(page, "t")
        service.kill()
        press(page, "t")
        expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
        service.start()
        # Any request that is answered takes the message away; here, that for the alarms.
        page.evaluate("dispatchEvent(new Event('labeled'))")
        expect(page.get_by_role("alert")).to_have_count(0)
        before = labels_of(service)
        assert 1 <= len(before) <= 3
        for _ in range(3):
            press(page, "t")
        with page.expect_response(lambda answer: answer.url.endswith("/audits/labels")):
            page.get_by_role("link", name="Try").click()
        expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()
    after = labels_of(service)
    assert before.items() < after.items()
    assert set(after.values()) == {"tie"}


def test_a_key_that_may_only_label_labels_all_its_sets_and_sees_nothing_else(
    browser: Browser, tmp_path: Path
) -> None:
    keys = write_keys(
        tmp_path / "keys.json",
        entry("ann", ["judge", "calibrate"]),
        entry("bob", ["label"]),
    )
    settings = {**SETTINGS, "SCOPE_AUDIT_TEXTS": "on", "SCOPE_API_KEYS_FILE": str(keys)}
    with Server(tmp_path, settings) as server:
        server.client.headers.update(header_of("ann"))
        for number, name in enumerate(("default", "other")):
            calibrate(server.client, name, pairs(100, start=2000 * number))
            judged(server.client, name, pairs(3, start=2000 * number + 1000))
        first = open_audits(server)
        with open_page(browser, server.url, fine=frozenset({401, 403})) as bob:
            bob.goto("/desk")
            bob.get_by_role("textbox", name="Key").fill(key_of("bob"))
            bob.get_by_role("button", name="Use this key").click()
            expect(bob.get_by_role("region", name="Question")).to_be_visible()
            expect(bob.get_by_role("navigation").get_by_role("link")).to_have_text(["Label"])
            expect(bob.get_by_text("Your labels have the name of your key, bob")).to_be_visible()
            question, _ = shown(bob)
            # Somebody else is faster: that label stays, and the page says so.
            label = {"id": first[question]["id"], "label": "tie"}
            server.client.post("/audits/labels", json={"labels": [label]}).raise_for_status()
            seen = [press(bob, "1") for _ in range(5)]
            expect(bob.get_by_role("alert")).to_contain_text(
                re.compile("^ann has labeled this pair first")
            )
            seen.append(shown(bob)[0])
            bob.keyboard.press("2")
            send(bob)
        assert set(seen) == set(first)
        audits = server.client.get("/audits").raise_for_status().json()["audits"]
        people = [audit["labelled_by"] for audit in audits]
        assert (people.count("ann"), people.count("bob")) == (1, 5)


def test_a_browser_without_a_key_asks_once_for_the_name_that_stands_beside_labels(
    service: Server, browser: Browser
) -> None:
    with open_page(browser, service.url, person=None) as page:
        page.goto("/desk#label/default")
        dialog = page.get_by_role("dialog", name="Who are you?")
        dialog.get_by_label("Your name").fill("José")
        dialog.get_by_role("button", name="Use this name").click()
        expect(page.get_by_text("Your labels have the name José")).to_be_visible()
        press(page, "t")
        with page.expect_response(lambda answer: answer.url.endswith("/audits/labels")):
            press(page, "t")
        page.reload()
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        expect(dialog).to_have_count(0)
    audits = service.client.get("/audits?status=labelled").raise_for_status().json()["audits"]
    assert {audit["labelled_by"] for audit in audits} == {"José"}


def test_hostile_texts_are_labeled_as_text(service: Server, browser: Browser) -> None:
    texts = [
        {
            "question": f"{kind}: {text}",
            "response_a": text,
            "response_b": f"{text} quality=1",
        }
        for kind, text in HOSTILE.items()
    ]
    texts.append({"question": "long", "response_a": "word " * 12_000, "response_b": "x" * 60_000})
    client = service.client
    for audit in open_audits(service).values():
        body = {"labels": [{"id": audit["id"], "label": "tie"}]}
        client.post("/audits/labels", json=body).raise_for_status()
    earlier = len(labels_of(service))
    judged(client, "default", texts)
    wanted = {text["question"] for text in texts}
    with open_page(browser, service.url) as page:
        page.goto("/desk#label/default")
        for number in range(len(texts)):
            question, left = shown(page)
            pair = next(text for text in texts if text["question"] == question)
            assert left in (pair["response_a"], pair["response_b"])
            wanted.remove(question)
            for width, scheme in FORMS:
                look_in(page, width, scheme)
                assert overflow(page) <= 0, (question, width)
                if number in (0, len(texts) - 1):
                    assert barriers(page) == [], (question, width, scheme)
            page.get_by_role("button", name="Equally good").click()
            if wanted:
                expect(page.get_by_role("region", name="Question")).not_to_have_text(question)
        send(page)
        assert page.title() == "scope-judge desk"
    assert list(labels_of(service).values()) == ["tie"] * (earlier + len(texts))
