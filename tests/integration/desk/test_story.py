"""An alarm is seen, labeled and ended by somebody who has nothing but the page; real vLLM.

.venv/bin/python -m pytest -n 0 -s tests/integration/desk/test_story.py

prints the clicks, keys and minutes.
"""

import itertools
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.demo.arena import as_item
from app.demo.pairs import demo_sets
from tests.integration.desk.browsing import open_page
from tests.integration.desk.test_label import shown
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, VLLM_START_S

pytestmark = [pytest.mark.vllm, pytest.mark.long]

ALARMING = 80
# Pairs since the alarm beyond those that the recovery needs, and pairs after it.
EXTRA, LATER = 20, 30
# Pairs after the recalibration that the person labels.
FEW = 10
# A person reads a short pair and presses a key.
SECONDS_A_LABEL = 5
# The same for a click and the sentence that leads to it.
SECONDS_A_CLICK = 10


class Traffic:
    """Pairs of the demo judge, whose better responses are known."""

    def __init__(self) -> None:
        self.better: dict[str, str] = {}
        self._pairs = iter(demo_sets().fresh)

    def pairs(self, count: int, *, wrong: float) -> list[dict[str, Any]]:
        """The next pairs.

        Args:
            count: Number of pairs.
            wrong: Share of the pairs whose wrong response is a list item, which the judge likes.
        """
        rng = random.Random(count)
        found = list[dict[str, Any]]()
        for pair in itertools.islice(self._pairs, count):
            a, b = pair.response_a, pair.response_b
            good, bad = (a, b) if pair.label == "A" else (b, a)
            self.better[pair.question] = good
            sides = (as_item(bad), good) if rng.random() < wrong else (a, b)
            found.append(
                {"question": pair.question, "response_a": sides[0], "response_b": sides[1]}
            )
        return found


class Person:
    """Somebody at the page, whose clicks and keys count."""

    def __init__(self, page: Page, better: dict[str, str], folder: Path) -> None:
        self.page = page
        self.clicks = self.keys = 0
        self._better = better
        self._folder = folder
        self._pictures = itertools.count()

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def look(self, name: str) -> None:
        """Keeps a picture of the page."""
        number = next(self._pictures)
        self.page.screenshot(path=self._folder / f"{number:02}-{name}.png", full_page=True)

    def label(self, until: Locator, most: int) -> int:
        """Labels pairs until something is on the page; returns the number of labels."""
        question = self.page.get_by_role("region", name="Question")
        before = self.keys
        while self.keys - before < most and not until.count():
            expect(question).to_be_visible()
            text, left = shown(self.page)
            self.page.keyboard.press("1" if left == self._better[text] else "2")
            self.keys += 1
            expect(question.filter(has_text=text)).to_have_count(0)
        return self.keys - before


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    settings = {
        "SCOPE_STORE_URL": f"sqlite:///{tmp_path}/store.db",
        "SCOPE_AUDIT_RATE": "1",
        "SCOPE_AUDIT_TEXTS": "on",
        "SCOPE_TIMEOUT_S": f"{PATIENCE_S:g}",
    }
    command = (sys.executable, "-m", "tests.serve_at_once")
    with Server(tmp_path, settings, start_timeout_s=VLLM_START_S, command=command) as server:
        yield server


def judge(service: Server, pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = service.client.post("/judge/batch", json={"comparisons": pairs}).raise_for_status()
    judgments: list[dict[str, Any]] = answer.json()["results"]
    return judgments


def test_an_alarm_is_ended_with_the_page_alone(
    service: Server, browser: Browser, tmp_path: Path
) -> None:
    traffic = Traffic()
    judged = judge(service, traffic.pairs(ALARMING, wrong=1))
    # The better response is always the second one.
    labels = [{"id": judgment["audit"]["id"], "label": "B"} for judgment in judged]
    service.client.post("/audits/labels", json={"labels": labels}).raise_for_status()
    needed = service.client.get("/calibrations/default/monitor").json()["recovery"]["audits"]
    judge(service, traffic.pairs(needed + EXTRA, wrong=0.25))
    with open_page(browser, f"http://127.0.0.1:{service.port}") as page:
        person = Person(page, traffic.better, tmp_path)
        begun = time.monotonic()
        page.goto("/desk")
        state = page.get_by_role("region", name="State")
        expect(page.get_by_role("link", name="What to do")).to_be_visible()
        person.look("opened")
        person.click(page.get_by_role("link", name="What to do"))
        expect(state).to_contain_text("Alarm")
        person.look("alarm")
        person.click(state.get_by_role("link", name="Label"))
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        person.look("label")
        labeled = person.label(page.get_by_text("enough labels to lift the alarm"), needed + EXTRA)
        # The line above the view refreshes itself.
        done = page.get_by_role("link", name="End the alarm")
        expect(done).to_be_visible()
        person.look("enough")
        person.click(done)
        person.look("ready")
        person.click(state.get_by_role("button", name="Recalibrate"))
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("This ends an alarm")
        person.look("preview")
        person.click(dialog.get_by_role("button", name="Recalibrate"))
        expect(state).to_contain_text("Attention")
        person.look("recalibrated")
        # Programs go on sending pairs.
        judge(service, traffic.pairs(LATER, wrong=0.25))
        link = state.get_by_role("link", name="Label")
        expect(link).to_be_visible()
        person.look("new-pairs")
        older = re.search(r"The first (\d+) are from before", state.text_content() or "")
        assert older is not None
        person.click(link)
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        later = person.label(page.get_by_text("No pair waits"), int(older[1]) + FEW)
        person.look("labelled")
        person.click(page.get_by_role("link", name="Watch"))
        expect(state).not_to_contain_text("Alarm")
        person.look("green")
        waited = time.monotonic() - begun
    minutes = (SECONDS_A_LABEL * person.keys + SECONDS_A_CLICK * person.clicks) / 60
    print(f"\n{labeled} labels until the alarm can end, {later} until the light is green")
    print(f"{person.clicks} clicks, {person.keys} keys; the script took {waited:.0f} s, a person")
    print(f"with {SECONDS_A_LABEL} s a label and {SECONDS_A_CLICK} s a click {minutes:.0f} minutes")
    assert labeled >= needed
    assert person.clicks < 12
    shown_now = service.client.get("/calibrations/default/monitor").json()
    assert (shown_now["light"], shown_now["version"]) == ("green", 2)
