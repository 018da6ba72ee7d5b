"""A set is made, used, alarmed and given up by somebody who has nothing but the page.

.venv/bin/python -m pytest -n 0 -s tests/integration/desk/test_story.py

prints the clicks, keys and minutes, and keeps pictures of each step in both widths and both themes.
Labels count at once here; a label counts an hour after its pair was judged elsewhere.
"""

import csv
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.integration.desk.browsing import FORMS, barriers, look_in, open_page, overflow
from tests.integration.desk.test_label import shown
from tests.integration.desk.worlds import SETTINGS, judged, pairs
from tests.integration.processes.server import Server

pytestmark = pytest.mark.long

LABELS = 200
# Pairs of the changed traffic before the alarm.
ALARMING = 60
# A person reads a short pair and presses a key.
SECONDS_A_LABEL = 5
# The same for a click and the sentence that leads to it.
SECONDS_A_CLICK = 10


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
        """Keeps pictures of the page, which has no barriers and fits its window."""
        number = next(self._pictures)
        for width, scheme in FORMS:
            look_in(self.page, width, scheme)
            assert overflow(self.page) <= 0, (name, width)
            assert barriers(self.page) == [], (name, width, scheme)
            path = self._folder / f"{number:02}-{name}-{width}-{scheme}.png"
            self.page.screenshot(path=path, full_page=True)
        look_in(self.page, 1280, "light")

    def label(self, until: Locator, most: int = 1000) -> int:
        """Labels pairs until something is on the page; returns the number of labels."""
        question = self.page.get_by_role("region", name="Question")
        for number in range(most):
            expect(question.or_(until).first).to_be_visible()
            if until.count():
                return number
            text, left = shown(self.page)
            self.page.keyboard.press("1" if left == self._better[text] else "2")
            self.keys += 1
            expect(question.filter(has_text=text)).to_have_count(0)
        return most


def changed(count: int, *, start: int) -> list[dict[str, Any]]:
    """Pairs of which the judge is sure, and right in hardly half."""
    rng = random.Random(start)
    return [
        {**pair, "label": "A" if rng.random() < 0.47 else "B"}
        for pair in pairs(count, start=start, gap=4.0)
    ]


def better_of(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Question -> the better response."""
    return {row["question"]: row[f"response_{row['label'].lower()}"] for row in rows}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    settings = {
        **SETTINGS,
        "SCOPE_STORE_URL": f"sqlite:///{tmp_path}/store.db",
        "SCOPE_AUDIT_TEXTS": "on",
    }
    with Server(tmp_path, settings) as server:
        yield server


def table_of(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "model 1", "model 2"])
        writer.writerows([[r["question"], r["response_a"], r["response_b"]] for r in rows])


def make_a_set(person: Person, table: Path) -> None:
    page = person.page
    page.goto("/desk")
    person.look("empty")
    page.get_by_label("File of pairs").set_input_files(table)
    person.clicks += 1
    for field, column in (
        ("Question", "prompt"),
        ("Response A", "model 1"),
        ("Response B", "model 2"),
    ):
        page.get_by_label(field).select_option(column)
        person.clicks += 1
    person.look("columns")
    person.click(page.get_by_role("button", name="Judge and preview"))
    dialog = page.get_by_role("dialog")
    expect(dialog).to_have_accessible_name("Who are you?")
    person.look("name")
    page.get_by_label("Your name").fill("Ada")
    person.click(dialog.get_by_role("button", name="Use this name"))
    expect(dialog).to_contain_text("200 pairs wait for a label then")
    person.look("preview of a set")
    person.click(dialog.get_by_role("button", name="Add them"))


def label_until_the_set_may_be_used(person: Person) -> int:
    """Returns the number of labels."""
    page = person.page
    expect(page.get_by_role("link", name="Label all")).to_be_visible()
    person.look("ways to label")
    person.click(page.get_by_role("link", name=f"Label all {LABELS}"))
    expect(page.get_by_role("region", name="Question")).to_be_visible()
    person.look("label")
    labels = person.label(page.get_by_text("That was the last pair"))
    person.look("labeled")
    person.click(page.get_by_role("button", name=f"Save {LABELS} labels"))
    person.click(page.get_by_role("link", name="May I use it?"))
    state = page.locator(".sets > li")
    expect(state.get_by_role("heading")).to_contain_text("You may use it at 10% for")
    person.look("trust")
    return labels


def label_until_the_alarm(person: Person) -> int:
    """Returns the number of labels."""
    page = person.page
    page.reload()
    person.click(page.get_by_role("link", name="Label", exact=True).last)
    person.look("check")
    alarm = page.get_by_role("status").filter(has_text="do not use the verdicts of default")
    sends = page.get_by_role("button", name="Send it")
    labels = person.label(alarm.or_(sends))
    # An answer that is not sent holds up those after it, and the last one may be an early pair.
    if sends.count():
        person.click(sends)
    expect(alarm).to_be_visible()
    person.look("alarm")
    return labels


def read_what_ends_it(person: Person, needed: int) -> None:
    page = person.page
    person.click(page.get_by_role("link", name="What to do"))
    state = page.get_by_role("region", name="State")
    expect(state).to_contain_text(f"of {needed} labeled")
    person.look("what to do")


def label_what_ends_it(person: Person) -> int:
    """Returns the number of labels."""
    page = person.page
    # The page refreshes itself.
    person.click(page.get_by_role("region", name="State").get_by_role("link", name="Label"))
    sends = page.get_by_role("button", name="Send it")
    labels = person.label(sends)
    person.click(sends)
    expect(page.get_by_text("the new labels of default are complete")).to_be_visible()
    person.look("complete")
    return labels


def end_the_alarm_and_give_up(person: Person, needed: int) -> None:
    page = person.page
    person.click(page.get_by_role("link", name="End the alarm"))
    watched, dialog = page.get_by_role("region", name="State"), page.get_by_role("dialog")
    expect(watched).to_contain_text(f"{needed} of {needed} labeled")
    person.look("ready")
    person.click(watched.get_by_role("button", name="End the alarm"))
    expect(dialog).to_contain_text("This judge cannot judge this traffic (right in ")
    person.look("honest preview")
    person.click(dialog.get_by_role("button", name="End the alarm"))
    expect(dialog).to_have_count(0)
    expect(watched.get_by_role("heading")).to_contain_text("This judge cannot judge this")
    person.look("end")
    person.click(page.get_by_role("link", name="Home"))
    state = page.locator(".sets > li")
    expect(state).to_contain_text("Stop")
    expect(state.get_by_role("heading")).to_contain_text("Choose another, or keep people")
    person.look("home at the end")


def test_a_person_with_the_page_alone_learns_when_to_trust_the_judge_and_when_not(
    service: Server, browser: Browser, tmp_path: Path
) -> None:
    own, alarming = pairs(LABELS, start=0), changed(ALARMING, start=1000)
    table_of(own, tmp_path / "pairs.csv")
    better = better_of(own) | better_of(alarming)
    client = service.client
    with open_page(browser, f"http://127.0.0.1:{service.port}", person=None) as page:
        person = Person(page, better, tmp_path)
        begun = time.monotonic()
        make_a_set(person, tmp_path / "pairs.csv")
        first = label_until_the_set_may_be_used(person)
        # Programs use the judge, and the traffic changes.
        judged(client, "default", alarming)
        second = label_until_the_alarm(person)
        needed = client.get("/calibrations/default/monitor").json()["recovery"]["audits"]
        read_what_ends_it(person, needed)
        later = changed(needed, start=5000)
        better.update(better_of(later))
        judged(client, "default", later)
        third = label_what_ends_it(person)
        end_the_alarm_and_give_up(person, needed)
        waited = time.monotonic() - begun
    minutes = (SECONDS_A_LABEL * person.keys + SECONDS_A_CLICK * person.clicks) / 60
    print(f"\n{first} labels for trust, {second} until the alarm, {third} until its end ({needed})")
    print(f"{person.clicks} clicks, {person.keys} keys; the script took {waited:.0f} s, a person")
    print(f"with {SECONDS_A_LABEL} s a label and {SECONDS_A_CLICK} s a click {minutes:.0f} minutes")
    assert (first, third) == (LABELS, needed)
    assert person.clicks < 25
    versions = client.get("/calibrations/default/versions").json()["versions"]
    assert [(each["by"], each["n"]) for each in versions] == [
        ("Ada", needed),
        ("Ada", LABELS),
        ("Ada", LABELS),
    ]
