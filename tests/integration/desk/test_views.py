"""Each view of the desk in a real browser, against a running service."""

import json
import math
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.integration.desk.browsing import (
    FORMS,
    HOSTILE,
    barriers,
    look_in,
    open_page,
    overflow,
)
from tests.integration.desk.worlds import SETTINGS, calibrate, pairs
from tests.integration.processes.server import Server
from tests.unit.api.keyring import entry, key_of, write_keys


def test_home_says_for_each_set_whether_it_may_be_used_and_why(url: str, browser: Browser) -> None:
    with open_page(browser, url) as page:
        page.goto("/desk")
        cards = page.locator(".sets > li")
        expect(cards).to_have_count(3)
        quiet = cards.filter(has=page.get_by_role("link", name="quiet"))
        expect(quiet.get_by_role("heading")).to_have_text(
            re.compile(
                r"You may use it at 10% for \d+% of pairs: \d\.\d% of its verdicts were wrong on "
                r"your 400 labels; for a promise that holds for this set, \d+%\."
            )
        )
        expect(quiet).to_contain_text("With care")
        drifted = cards.filter(has=page.get_by_role("link", name="drifted"))
        expect(drifted).to_contain_text("Stop")
        # The change of the traffic comes first.
        expect(drifted.get_by_role("heading")).to_have_text(
            re.compile(
                r"^The traffic has changed .* You may not use it: \d+% to \d+% of its verdicts"
            )
        )
        expect(drifted).to_contain_text("0 of 200 labeled, 0 of 200 judged so far")
        expect(cards.locator(".button")).to_have_count(3)


def test_a_pair_is_tried_with_the_keyboard_alone(
    url: str, browser: Browser, service: Server
) -> None:
    better = f"quality=4 {HOSTILE['script']}"
    with open_page(browser, url) as page:
        page.goto("/desk#try")
        expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()
        for name, text in (("Response A", better), ("Response B", "quality=0")):
            field = page.get_by_role("textbox", name=name)
            while not field.evaluate("field => field === document.activeElement"):
                page.keyboard.press("Tab")
            page.keyboard.press("Control+A")
            page.keyboard.type(text)
        page.keyboard.press("Control+Enter")
        result = page.get_by_role("region", name="Result")
        verdict = result.locator(".verdict")
        expect(verdict).to_have_text("A is better")
        body = {"question": "Is the number 4821 even or odd?", "alpha": 0.1}
        texts = {"response_a": better, "response_b": "quality=0"}
        told = service.client.post("/judge", json={**body, **texts}).json()
        unsure = told["uncertainty"] / math.log(2)
        expect(result).to_contain_text(f"Its uncertainty is {unsure:.0%} of the most")
        expect(result).to_contain_text(f"{100 * told['p_fwd']:.1f}%")
        # The pair is on the curve of its set.
        expect(result.locator("canvas")).to_have_count(1)
        focused = "document.activeElement.parentElement.textContent.trim()"
        assert page.evaluate(focused) == "Response B"
        result.get_by_role("button", name="Why?").click()
        why = result.get_by_role("region", name="Explanation")
        expect(why).to_contain_text("Written afterwards. This is not the reason for the verdict")
        page.get_by_label("Wrong at most").fill("0.1")
        expect(verdict.or_(why)).to_have_count(0)
        page.keyboard.press("Control+Enter")
        expect(verdict).to_have_text("No verdict")
        page.get_by_role("button", name="Swap the responses").click()
        page.get_by_label("Wrong at most").fill("10")
        page.get_by_role("button", name="Judge", exact=True).click()
        expect(verdict).to_have_text("B is better")
        page.get_by_text("The same in your program").click()
        expect(page.locator("pre")).to_contain_text("<script>")
        assert page.title() == "scope-judge desk"
        expect(page.locator("main script")).to_have_count(0)


def test_a_set_is_rolled_back_and_deleted_after_a_preview_and_a_question(
    url: str, browser: Browser, service: Server
) -> None:
    path = "/calibrations/gone"
    for start in (40_000, 41_000):
        calibrate(service.client, "gone", pairs(50, start=start))

    def version() -> int:
        return int(service.client.get(path).json()["version"])

    with open_page(browser, url) as page:
        page.goto("/desk#sets/gone")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Roll back to version 1").click()
        expect(dialog).to_contain_text("50 removed: the set then has 50 pairs")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert version() == 2
        page.get_by_role("button", name="Roll back to version 1").click()
        dialog.get_by_role("button", name="Roll back").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("version 3, 50 pairs")
        page.get_by_role("button", name="Delete this set").click()
        preview = service.client.delete(f"{path}?dry_run=true").json()
        expect(dialog).to_contain_text(preview["note"][1:])
        # The answer that changes nothing has the focus.
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        assert version() == 3
        page.get_by_role("button", name="Delete this set").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_role("heading", name="May I use this judge?")).to_be_visible()
    assert service.client.get(path).status_code == 404


def test_an_alarm_is_on_every_view_and_leads_to_what_ends_it(url: str, browser: Browser) -> None:
    with open_page(browser, url) as page:
        page.goto("/desk#watch/default")
        state = page.get_by_role("region", name="State")
        expect(state).to_contain_text("With care")
        # Every other view names the set with an alarm, and leads to it.
        line = page.get_by_role("status").filter(has_text="do not use the verdicts of drifted")
        expect(line).to_contain_text("0 of 200 new labels")
        line.get_by_role("link", name="What to do").click()
        expect(state).to_contain_text("Alarm")
        expect(line).to_have_count(0)
        expect(state.get_by_role("heading")).to_have_text(
            re.compile(r"^The traffic has changed \(seen .* GMT\+1\): .* the promise was 10% on")
        )
        expect(state).to_contain_text("0 of 200 labeled, 0 of 200 judged so far")
        expect(page.get_by_text("far beyond the limit").first).to_be_visible()
        # The service's own words, with commands and settings, are for somebody else.
        expect(state.get_by_text("/calibrations/{name}/absorb")).to_be_hidden()


def test_an_error_stands_beside_its_control_until_the_input_changes(
    url: str, browser: Browser
) -> None:
    with open_page(browser, url, fine=frozenset({404, 422})) as page:
        alert = page.get_by_role("alert")
        page.goto("/desk#sets/missing")
        expect(alert).to_contain_text("missing")
        page.goto("/desk#try")
        expect(alert).to_have_count(0)
        page.get_by_label("Question").fill(" ")
        page.get_by_role("button", name="Judge", exact=True).click()
        expect(page.get_by_role("region", name="Try a pair").get_by_role("alert")).to_contain_text(
            "blank"
        )
        page.get_by_label("Question").fill("x")
        expect(alert).to_have_count(0)


def test_a_button_that_waits_says_so_and_keeps_the_focus(url: str, browser: Browser) -> None:
    with open_page(browser, url) as page:
        held: list[Route] = []
        page.route("**/judge", lambda route: held.append(route))
        page.goto("/desk#try")
        judge = page.get_by_role("button", name="Judge", exact=True)
        judge.click()
        waiting = page.get_by_role("button", name="Judging…")
        expect(waiting).to_have_attribute("aria-disabled", "true")
        expect(waiting).to_be_focused()
        held.pop().continue_()
        expect(page.locator(".verdict")).to_have_count(1)
        expect(judge).to_be_focused()


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("thought_unfinished", "The judge's thought did not end"),
        ("escalation_unavailable", "the large one cannot be asked now"),
    ],
)
def test_a_pair_without_a_score_has_its_reason_and_no_uncertainty(
    reason: str, sentence: str, url: str, browser: Browser
) -> None:
    numbers = ("preferred", "p_fwd", "p_rev", "p_bar", "uncertainty", "confidence", "risk_level")

    def without_score(route: Route) -> None:
        judgment = route.fetch().json() | dict.fromkeys(numbers)
        route.fulfill(json=judgment | {"verdict": "abstain", "reason": reason})

    with open_page(browser, url) as page:
        page.route("**/judge", without_score)
        page.goto("/desk#try")
        page.get_by_role("button", name="Judge", exact=True).click()
        result = page.get_by_role("region", name="Result")
        expect(result).to_contain_text(sentence)
        expect(result).not_to_contain_text("uncertainty")


def test_no_view_has_barriers_or_scrolls_sideways(url: str, browser: Browser) -> None:
    views = ("home", "try", "sets/drifted", "watch/drifted", "watch/default", "label/default")
    with open_page(browser, url) as page:
        for view in views:
            page.goto("about:blank")
            page.goto(f"/desk#{view}")
            expect(page.locator("main h1")).to_have_count(1)
            if view == "try":
                page.get_by_role("button", name="Judge", exact=True).click()
                expect(page.locator(".verdict")).to_have_count(1)
            if view in ("try", "sets/drifted"):
                expect(page.locator("canvas")).to_have_count(1)
            for width, scheme in FORMS:
                look_in(page, width, scheme)
                assert barriers(page) == [], (view, width, scheme)
                assert overflow(page) <= 0, (view, width)
            # A small phone and a large screen: text grows with it, and is never below 16 px.
            for width, pixels in ((360, 16), (3840, 22)):
                look_in(page, width, "light")
                assert overflow(page) <= 0, (view, width)
                size = page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
                assert round(size) == pixels, (view, width)


def test_a_key_is_asked_for_and_stays_in_its_tab(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = key_of("ann")
    write_keys(keys, entry("ann"))
    settings = {**SETTINGS, "SCOPE_API_KEYS_FILE": str(keys)}
    with Server(tmp_path, settings) as server:
        url = server.url
        with open_page(browser, url, fine=frozenset({401, 403})) as page:
            page.goto("/desk#try")
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Key").fill("wrong")
            dialog.get_by_role("button", name="Use this key").click()
            expect(dialog.get_by_role("alert")).to_be_visible()
            dialog.get_by_label("Key").fill(key)
            dialog.get_by_role("button", name="Use this key").click()
            expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()
            kept = page.evaluate("[{...localStorage}, document.cookie, location.href]")
            assert key not in json.dumps(kept)
            assert page.evaluate("Object.values(sessionStorage)") == [key]
            page.get_by_role("button", name="Forget key").click()
            expect(dialog).to_be_visible()
            assert page.evaluate("Object.values(sessionStorage)") == []
