"""People label the queue of a set on the desk: blind, by keyboard, and without a lost answer."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from tests.integration.desk.browsing import FORMS, barriers, look_in, open_page, overflow
from tests.integration.desk.test_views import HOSTILE
from tests.integration.desk.worlds import SETTINGS, calibrate, judged, pairs
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.unit.api.keyring import entry, header_of, key_of, write_keys

LABELLED = 20


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
        page = service.client.get(f"/audits/texts?after={after}").raise_for_status().json()
        found |= {audit["texts"]["question"]: audit for audit in page["audits"]}
        after = page["next_after"]
    return found


def labels_of(service: Server) -> dict[str, str]:
    """Id -> label of the audits that have one."""
    audits = service.client.get("/audits?limit=1000").raise_for_status().json()["audits"]
    return {audit["id"]: audit["label"] for audit in audits if audit["label"] is not None}


def senders_of(service: Server, number: int) -> list[str]:
    """The people of at least so many labels, which may be on their way."""
    deadline = time.monotonic() + PATIENCE_S
    people = list[str]()
    while len(people) < number:
        assert time.monotonic() < deadline, people
        audits = service.client.get("/audits?limit=1000").raise_for_status().json()["audits"]
        people = [audit["labelled_by"] for audit in audits if audit["label"] is not None]
    return people


def shown(page: Page) -> tuple[str, str]:
    """Question and left response of the pair on the page."""
    question = page.get_by_role("region", name="Question").text_content()
    left = page.get_by_role("region", name="Left response").text_content()
    assert question is not None
    assert left is not None
    return question, left


def press(page: Page, key: str) -> str:
    """Presses a key and waits for another pair; returns the question of the one before."""
    question, _ = shown(page)
    page.keyboard.press(key)
    expect(page.get_by_role("region", name="Question")).not_to_have_text(question)
    return question


def send(page: Page) -> None:
    """Sends the answer to the last pair of the queue."""
    with page.expect_response(lambda answer: answer.url.endswith("/queue/answers")):
        page.get_by_role("button", name="Send it").click()
    expect(page.get_by_text("No pair waits for your label")).to_be_visible()


def test_pairs_labelled_by_keyboard_are_exactly_the_labels_of_the_service(
    service: Server, browser: Browser
) -> None:
    audits = open_audits(service)
    expected: dict[str, str] = {}
    with open_page(browser, f"http://127.0.0.1:{service.port}") as page:
        page.goto("/desk#label/default")
        for number in range(LABELLED):
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
    assert labels_of(service) == expected
    assert skipped in open_audits(service)


def test_a_skipped_pair_does_not_come_back_with_pairs_that_were_asked_for_before(
    service: Server, browser: Browser
) -> None:
    held: list[tuple[Route, APIResponse]] = []
    with open_page(browser, f"http://127.0.0.1:{service.port}") as page:
        page.goto("/desk#label/default")
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        page.route(
            "**/queue",
            lambda route: route.continue_() if held else held.append((route, route.fetch())),
        )
        for _ in range(3):
            press(page, "1")
        while not held:
            page.wait_for_timeout(10)
        skipped = {press(page, "s"), shown(page)[0]}
        page.keyboard.press("s")
        expect(page.get_by_role("region", name="Question")).to_have_count(0)
        ((route, answer),) = held
        route.fulfill(response=answer)
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        assert shown(page)[0] not in skipped
        page.get_by_role("link", name="Try").click()


def test_two_tabs_with_the_same_key_or_none_get_different_pairs(
    service: Server, browser: Browser
) -> None:
    url = f"http://127.0.0.1:{service.port}"
    with open_page(browser, url) as one, open_page(browser, url) as other:
        for page in (one, other):
            page.goto("/desk#label/default")
            expect(page.get_by_role("region", name="Question")).to_be_visible()
        name = other.get_by_label("You label as")
        assert name.input_value() != one.get_by_label("You label as").input_value()
        name.fill("anna")
        name.press("Enter")
        seen = [{press(page, "1") for _ in range(5)} for page in (one, other)]
        assert not seen[0] & seen[1]
        other.get_by_role("link", name="Try").click()
        expect(other.get_by_role("heading", name="Try a pair")).to_be_visible()
        # One answer of the other tab is held back.
        people = senders_of(service, 9)
        assert people.count("anna@anonymous") == 5
        assert len(people) == 9


def test_a_killed_service_loses_no_answer_that_it_has_taken(
    service: Server, browser: Browser
) -> None:
    url = f"http://127.0.0.1:{service.port}"
    with open_page(browser, url, fine=frozenset(), refused=True) as page:
        page.goto("/desk#label/default")
        # The service has taken one answer at least.
        with page.expect_response(lambda answer: answer.url.endswith("/queue/answers")):
            for _ in range(3):
                press(page, "t")
        service.kill()
        press(page, "t")
        expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
        service.start()
        before = labels_of(service)
        assert 1 <= len(before) <= 3
        for _ in range(3):
            press(page, "t")
        with page.expect_response(lambda answer: answer.url.endswith("/queue/answers")):
            page.get_by_role("link", name="Try").click()
        expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()
    after = labels_of(service)
    assert before.items() < after.items()
    assert set(after.values()) == {"tie"}


def test_two_people_get_different_pairs_and_a_link_does_nothing_else(
    browser: Browser, tmp_path: Path
) -> None:
    keys = write_keys(
        tmp_path / "keys.json",
        entry("ann", ["judge", "calibrate", "label"]),
        entry("bob", ["label"]),
    )
    settings = {**SETTINGS, "SCOPE_AUDIT_TEXTS": "on", "SCOPE_API_KEYS_FILE": str(keys)}
    with Server(tmp_path, settings) as server:
        server.client.headers.update(header_of("ann"))
        calibrate(server.client, "default", pairs(100, start=0))
        judged(server.client, "default", pairs(30, start=1000))
        url = f"http://127.0.0.1:{server.port}"
        fine = frozenset({401})
        with open_page(browser, url, fine=fine) as ann, open_page(browser, url, fine=fine) as eve:
            ann.goto("/desk#label/default")
            ann.get_by_role("textbox", name="Key").fill(key_of("ann"))
            ann.get_by_role("button", name="Use this key").click()
            expect(ann.get_by_role("region", name="Question")).to_be_visible()
            ann.get_by_text("Invite a reviewer").click()
            ann.get_by_label("Name of the reviewer").fill("eve")
            ann.get_by_role("button", name="Make a link").click()
            link = ann.locator("pre").text_content()
            assert link is not None
            eve.goto(link)
            expect(eve.get_by_role("region", name="Question")).to_be_visible()
            token = eve.evaluate("sessionStorage.getItem('scope-desk-key')")
            assert token in link
            assert eve.evaluate("location.href") == f"{url}/desk#label/default"
            expect(eve.get_by_role("navigation").get_by_role("link")).to_have_text(["Label"])
            seen: dict[str, list[str]] = {"ann": [], "eve": []}
            for _ in range(8):
                seen["ann"].append(press(ann, "1"))
                seen["eve"].append(press(eve, "2"))
            assert len(set(seen["ann"])) == len(set(seen["eve"])) == 8
            assert not set(seen["ann"]) & set(seen["eve"])
        stolen = {"Authorization": f"Bearer {token}"}
        for method, path in (
            ("GET", "/calibrations"),
            ("GET", "/audits/texts"),
            ("POST", "/judge"),
            ("POST", "/calibrations/other/queue"),
        ):
            answer = server.client.request(method, path, headers=stolen, json={"take": 1})
            assert answer.status_code == 403, path


def test_hostile_texts_are_labelled_as_text(service: Server, browser: Browser) -> None:
    texts = [
        {
            "question": f"{kind}: {text[:1000]}",
            "response_a": text,
            "response_b": f"{text} quality=1",
        }
        for kind, text in HOSTILE.items()
        # The service keeps no texts of an audit above 128 KiB.
        if len(text) < 10_000
    ]
    texts.append({"question": "long", "response_a": "word " * 12_000, "response_b": "x" * 60_000})
    client = service.client
    for audit in open_audits(service).values():
        body = {"labels": [{"id": audit["id"], "label": "tie"}]}
        client.post("/audits/labels", json=body).raise_for_status()
    judged(client, "default", texts)
    wanted = {text["question"] for text in texts}
    with open_page(browser, f"http://127.0.0.1:{service.port}") as page:
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
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert json.dumps(labels_of(service)).count("tie") == 30 + len(texts)
