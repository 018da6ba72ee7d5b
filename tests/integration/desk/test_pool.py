"""The pool of a set is labeled on the desk, with the texts of a file, up to its threshold."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.desk.browsing import barriers, open_page, overflow
from tests.integration.desk.test_label import shown
from tests.integration.desk.worlds import SETTINGS
from tests.integration.processes.server import Server

LEVEL = "alpha=0.3&delta=0.2"
# Number of pairs that are in the pool before the others.
PART = 20
# The judge is right about all of them. The file has each second pair swapped.
PAIRS = [
    {"question": f"Pool {i}?", "response_a": f"quality={1 + i / 30}", "response_b": "quality=0"}
    for i in range(30)
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("desk"), dict(SETTINGS)) as server:
        yield server


def add(page: Page, path: Path, count: int) -> None:
    """Adds the pairs of a file to the pool, after a look at the question that cancels it."""
    page.get_by_label("File for the pool").set_input_files(path)
    page.get_by_role("button", name="Read and preview").click()
    dialog = page.get_by_role("dialog", name=f"Add {count} pairs without labels to default?")
    expect(dialog).to_contain_text("the set answers only under the guarantee pac")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Read and preview").click()
    if path.suffix == ".csv":
        expect(dialog).to_contain_text("1 repeated pair will be left out")
        expect(dialog).to_contain_text("1 row will be left out: there are 2 cells")
    dialog.get_by_role("button", name="Judge and add them").click()


def needed(service: Server) -> dict[str, Any]:
    found = service.client.get(f"/calibrations/default/next?{LEVEL}").raise_for_status()
    answer: dict[str, Any] = found.json()
    return answer


def answer(page: Page) -> None:
    """Chooses the better response, and waits until the service has the answer before it."""
    question, left = shown(page)
    page.keyboard.press("2" if left == "quality=0" else "1")
    same = page.get_by_role("region", name="Question").filter(has_text=question)
    expect(same).to_have_count(0)


def test_a_pool_is_labeled_in_its_order_until_the_threshold_is_known(
    service: Server, browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "pool.jsonl"
    swapped = [
        {**pair, "response_a": pair["response_b"], "response_b": pair["response_a"]}
        for pair in PAIRS
    ]
    rows = [(PAIRS, swapped)[number % 2][number] for number in range(len(PAIRS))]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    part = tmp_path / "part.csv"
    cells = [",".join(row[name] for name in PAIRS[0]) for row in rows]
    # One pair twice, and a row without a second response.
    lines = [",".join(PAIRS[0]), *cells[:PART], cells[0], "Half?,yes"]
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with open_page(browser, f"http://127.0.0.1:{service.port}", width=390) as page:
        page.goto("/desk")
        page.get_by_text("The pairs have no labels yet").click()
        add(page, part, PART)
        expect(page.get_by_role("heading", name="Try a pair")).to_be_visible()
        page.goto("/desk#label/default")
        page.get_by_text("Add pairs without labels").click()
        add(page, path, len(PAIRS))
        expect(page.get_by_text("10 pairs added; the set had 20 of them already")).to_be_visible()
        assert overflow(page) <= 0
        page.reload()
        first = needed(service)["needed"]
        assert first > 2
        page.get_by_text("Label the pool: 30 pairs without a label").click()
        page.get_by_label("Alpha").fill("0.3")
        page.get_by_label("Delta").fill("0.2")
        page.get_by_role("button", name="Label the pool").click()
        expect(page.get_by_text("The next pairs of the pool are not here")).to_be_visible()
        page.get_by_label("File of pairs").set_input_files(path)
        expect(page.get_by_role("region", name="Question")).to_be_visible()
        status = page.get_by_role("status").filter(has_text="more label")
        expect(status).to_contain_text(f"{first} more labels until the next test")
        assert overflow(page) <= 0
        assert barriers(page) == []
        # The last pair of the pool is the surest.
        assert shown(page)[0] == "Pool 29?"
        expect(page.get_by_role("button", name="Cannot be labeled")).to_be_disabled()
        answer(page)
        page.keyboard.press("u")
        expect(page.get_by_role("region", name="Question")).to_have_text("Pool 29?")
        answer(page)
        answer(page)
        expect(status).to_contain_text(f"{first - 1} more label")
        assert needed(service)["labelled"] == 1
        label_the_rest(page)
        expect(page.get_by_text("The threshold at alpha 0.3 is decided")).to_be_visible()
    found = needed(service)
    assert (found["complete"], found["feasible"]) == (True, True)
    examples = service.client.get("/calibrations/default/examples").raise_for_status().json()
    labels = [each["label"] for each in examples["examples"] if each["label"] is not None]
    # As many labels as the tests needed, and each for the right response.
    assert len(labels) == found["labelled"]
    assert all(
        (each["label"] == "A") == (each["gap_fwd"] > 0)
        for each in examples["examples"]
        if each["label"] is not None
    )


def label_the_rest(page: Page) -> None:
    """Labels pairs until none is left."""
    question = page.get_by_role("region", name="Question")
    send = page.get_by_role("button", name="Send it")
    known = page.get_by_text("The threshold at alpha 0.3 is decided")
    while not known.count():
        if question.count():
            answer(page)
        else:
            # The button is there for a moment only if further pairs are on their way.
            send.evaluate_all("buttons => buttons.forEach((button) => button.click())")
            page.wait_for_timeout(20)
