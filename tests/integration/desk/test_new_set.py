"""A set is made of a file on the desk: with labels, or without any and then labeled there."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.desk.browsing import barriers, label_pairs, open_page, overflow, shown
from tests.integration.desk.worlds import SETTINGS, calibrate, pairs
from tests.integration.processes.server import Server

# The judge is right about all of them. Each second pair of the file has its good response as B.
OPEN = [
    {
        "question": f"Pool {i}?",
        **dict(
            zip(
                ("response_a", "response_b"),
                (f"quality={1 + i / 30}", "quality=0")[:: 1 if i % 2 else -1],
                strict=True,
            )
        ),
    }
    for i in range(60)
]

BETTER = {row["question"]: max(row["response_a"], row["response_b"], key=len) for row in OPEN}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("desk"), dict(SETTINGS)) as server:
        yield server


def choose(page: Page, path: Path) -> None:
    page.get_by_label("File of pairs").set_input_files(path)


def open_again(page: Page, path: Path) -> None:
    """Opens a file in a browser that does not have the texts of a set."""
    page.get_by_label("File of these pairs").set_input_files(path)
    page.get_by_role("button", name="Open").click()


def make(page: Page, title: str) -> None:
    page.get_by_role("button", name="Judge and preview").click()
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog).to_be_visible()
    assert barriers(page) == []
    # A dialogue is in the middle.
    box, window = dialog.bounding_box(), page.viewport_size
    assert box is not None
    assert window is not None
    assert abs(box["x"] + box["width"] / 2 - window["width"] / 2) < 2
    assert abs(box["y"] + box["height"] / 2 - window["height"] / 2) < 2
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog).to_have_count(0)


def detail(service: Server, path: str) -> dict[str, Any]:
    found: dict[str, Any] = service.client.get(f"/calibrations/{path}").raise_for_status().json()
    return found


def test_a_table_with_other_columns_becomes_a_set_under_a_name_chosen_later(
    service: Server, url: str, browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.csv"
    names = {"question": "Frage", "response_a": "eins", "response_b": "zwei", "label": "besser"}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names.values())
        writer.writerows([row[name] for name in names] for row in pairs(150, start=0))
    with open_page(browser, url, width=390) as page:
        page.goto("/desk")
        expect(page.get_by_role("heading", name="No set yet")).to_be_visible()
        choose(page, path)
        for field, column in zip(
            ("Question", "Response A", "Response B"), names.values(), strict=False
        ):
            page.get_by_label(field).select_option(column)
        expect(page.get_by_text("150 pairs: 0 with a label, 150 to label here")).to_be_visible()
        page.get_by_label("Label (A, B or tie)").select_option("besser")
        expect(page.get_by_text("150 pairs: 150 with a label, 0 to label here")).to_be_visible()
        # The file stays while the name is not one.
        page.get_by_label("Name").fill("my set")
        expect(page.get_by_role("button", name="Judge and preview")).to_be_disabled()
        page.get_by_label("Name").fill("mine")
        assert overflow(page) <= 0
        make(page, "Make mine from 150 pairs?")
        expect(page.get_by_role("link", name="mine")).to_be_visible()
        expect(page.get_by_role("heading", name="You may use it at")).to_be_visible()
        expect(page.get_by_label("Name")).to_have_value("set-2")
    assert (
        detail(service, "mine")["labelled"],
        len(detail(service, "mine/versions")["versions"]),
    ) == (150, 1)


def test_a_file_that_cannot_be_used_says_why_beside_its_field(
    url: str, browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    with open_page(browser, url) as page:
        page.goto("/desk")
        alert = page.get_by_role("region", name="New set").get_by_role("alert")
        path.write_bytes(b"PK\x03\x04")
        choose(page, path)
        expect(alert).to_contain_text("The file cannot be used: it is an Excel or Word file")
        other = tmp_path / "pairs.json"
        other.write_text(json.dumps([*OPEN, {"question": "half"}]), encoding="utf-8")
        choose(page, other)
        expect(alert).to_have_count(0)
        expect(
            page.get_by_text(
                "60 pairs: 0 with a label, 60 to label here. 1 row left out; the first"
            )
        ).to_be_visible()


def test_pairs_without_labels_are_labeled_in_one_version_and_survive_a_reload(
    service: Server, url: str, browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in OPEN), encoding="utf-8")
    with open_page(browser, url) as page:
        page.goto("/desk")
        page.get_by_label("Name").fill("pool")
        choose(page, path)
        make(page, "Make pool from 60 pairs?")
        # Both ways have their number.
        needed = detail(service, "pool/next?alpha=0.25&delta=0.1")["needed"]
        page.get_by_label("Promise").select_option("25%")
        expect(page.get_by_role("link", name="Label all 60")).to_be_visible()
        page.get_by_role("link", name=f"Label what it needs: {needed} to 60").click()
        expect(page.get_by_text(f"0 labeled, {needed} to 60 more")).to_be_visible()
        assert barriers(page) == []
        assert overflow(page) <= 0
        # The last pair is the surest.
        assert shown(page)[0] == "Pool 59?"
        expect(page.get_by_role("button", name="Cannot be labeled")).to_be_disabled()
        expect(page.get_by_text("No pair of the set itself can be closed")).to_be_visible()
        page.keyboard.press("1")
        page.keyboard.press("u")
        expect(page.get_by_role("region", name="Question")).to_have_text("Pool 59?")
        last = page.get_by_text("That was the last pair that the promise needs")
        label_pairs(page, BETTER, last, most=3)
        # A tab that is closed sends what it has.
        page.goto("about:blank")
        page.goto("/desk#label/pool?for=0.25")
        needed -= 3
        expect(page.get_by_text(f"3 labeled, {needed} to 57 more")).to_be_visible()
        label_pairs(page, BETTER, last, most=3)
        # A label that has not arrived stays in the browser, with what it is for.
        page.evaluate("() => { fetch = () => Promise.reject(new TypeError()); }")
        page.goto("about:blank")
        page.goto("/desk#home")
        expect(page.get_by_text("3 labels wait in this browser")).to_be_visible()
        page.get_by_role("link", name="save", exact=True).click()
        expect(page.get_by_text(f"6 labeled, {needed - 3} to 54 more")).to_be_visible()
        later = label_pairs(page, BETTER, last)
        # Labels that wait say what they are for, and so does the address once they are saved.
        page.evaluate("location.hash = '#label/pool'")
        page.get_by_role("button", name=f"Save {3 + later} labels").click()
        expect(page).to_have_url(re.compile(r"#label/pool\?for=0.25$"))
        expect(page.get_by_role("status").first).to_contain_text("of 25% for this set is decided")
        page.get_by_role("link", name="May I use it?").click()
        card = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="pool"))
        expect(card.get_by_role("heading")).to_contain_text("You may use it at 25% for 100% of")
        page.goto("/desk#try/pool")
        expect(page.get_by_label("Wrong at most, %")).to_have_value("25")
        expect(page.get_by_label("Holds")).to_have_value("pac")
    found = detail(service, "pool/next?alpha=0.25&delta=0.1")
    assert (found["complete"], found["feasible"], found["labelled"]) == (True, True, 6 + later)
    examples = detail(service, "pool/examples")["examples"]
    assert all(
        (each["label"] == "A") == (each["gap_fwd"] > 0)
        for each in examples
        if each["label"] is not None
    )
    # The pairs, and a version for each session of labels by the person of this browser.
    assert [each["by"] for each in detail(service, "pool/versions")["versions"]] == ["Tess"] * 3


def test_another_browser_opens_the_file_and_chooses_no_promise_in_silence(
    service: Server, url: str, browser: Browser, tmp_path: Path
) -> None:
    path, other = tmp_path / "pairs.json", tmp_path / "other.json"
    pool = [{**row, "question": f"Else, {row['question']}"} for row in OPEN]
    better = {f"Else, {question}": response for question, response in BETTER.items()}
    first = [{**row, "label": "AB"[i % 2 == 0]} for i, row in enumerate(pool[-2:])]
    client = service.client
    calibrate(client, "default", pairs(100, start=7000))
    client.post("/calibrations/else/pool", json={"comparisons": pool}).raise_for_status()
    calibrate(client, "else", first)
    with open_page(browser, url) as page:
        # A set in which pairs wait, rather than the default one.
        page.goto("/desk#label")
        expect(page.get_by_role("heading", name="Pairs to label")).to_have_text(
            "Pairs to label: 58 of else, 2 labeled"
        )
        other.write_text(json.dumps(OPEN), encoding="utf-8")
        open_again(page, other)
        expect(page.get_by_role("alert")).to_contain_text("None of these 60 pairs is in else.")
        # A part of the file: one of the pairs with labels, and all others but the second to label.
        path.write_text(json.dumps([*pool[:56], pool[57], pool[59]]), encoding="utf-8")
        open_again(page, path)
        expect(page.get_by_text("The texts of 1 pair are not in this browser")).to_be_visible()
        # What the labels of another browser are for is not known here.
        expect(
            page.get_by_text("Choose the percentage with which the labeling began")
        ).to_be_visible()
        expect(page.get_by_role("link", name="Label what it needs")).to_have_count(0)
        page.get_by_label("Promise").select_option("20%")
        page.get_by_role("link", name=re.compile("Label what it needs: .* more")).click()
        lacks = page.get_by_text("The text of the next pair is not in this browser")
        assert label_pairs(page, better, lacks) == 1
        path.write_text(json.dumps(pool), encoding="utf-8")
        open_again(page, path)
        expect(page.get_by_label("File of these pairs")).to_have_count(0)
        label_pairs(page, better, page.get_by_text("That was the last pair"), most=4)
        page.get_by_role("link", name="Home", exact=True).click()
        expect(page.get_by_role("heading", name="May I use this judge?")).to_be_visible()
        page.goto("/desk#label/else")
        expect(page.get_by_label("Promise")).to_have_value("0.2")
        expect(page.get_by_text("The labels so far are for it: keep it")).to_be_visible()
        page.get_by_label("Promise").select_option("10%")
        expect(page.get_by_text("The labels so far are for 20%")).to_be_visible()
        page.get_by_role("link", name="Label all 53").click()
        expect(page.get_by_text("7 labeled, 53 more")).to_be_visible()
    assert detail(service, "else")["labelled"] == 7


@pytest.mark.parametrize(
    ("status", "said"), [(None, "cannot be reached"), (502, "does not answer (status 502)")]
)
def test_a_service_that_is_lost_is_no_last_pair(
    service: Server, url: str, browser: Browser, tmp_path: Path, status: int | None, said: str
) -> None:
    name = f"lost-{status}"
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(OPEN), encoding="utf-8")
    service.client.post(f"/calibrations/{name}/pool", json={"comparisons": OPEN})
    with open_page(browser, url, fine=frozenset({502}), refused=True) as page:
        page.goto(f"/desk#label/{name}?for=all")
        # The browser has not made the set, so it does not know which promise was chosen.
        expect(page.get_by_label("Promise")).to_have_value("")
        open_again(page, path)
        expect(page.get_by_text("0 labeled, 60 more")).to_be_visible()
        page.route(
            "**/audits?*",
            lambda route: route.abort() if status is None else route.fulfill(status=status),
        )
        again = page.get_by_role("button", name="Try again")
        labeled = label_pairs(page, BETTER, again)
        expect(page.get_by_role("status").filter(has_text=said)).to_contain_text(
            f"{labeled} labels wait here."
        )
        expect(page.get_by_text("That was the last pair")).to_have_count(0)
        page.unroute_all()
        again.click()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_text(f"{labeled} labeled, {60 - labeled} more")).to_be_visible()


def test_pairs_without_labels_end_no_verdicts(
    service: Server, url: str, browser: Browser, tmp_path: Path
) -> None:
    calibrate(service.client, "good", pairs(200, start=5000))
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in OPEN[:30]), encoding="utf-8")
    with open_page(browser, url) as page:
        page.goto("/desk#sets/good")
        choose(page, path)
        page.get_by_role("button", name="Judge and preview").click()
        offer = page.get_by_role("dialog", name="Keep the verdicts of good?")
        offer.get_by_role("button", name="Make good-2").click()
        page.get_by_role("dialog", name="Make good-2 from 30 pairs?").get_by_role(
            "button", name="Make it"
        ).click()
        expect(page.get_by_role("heading", name="Pairs to label: 30 of good-2")).to_be_visible()
    assert detail(service, "good")["unlabelled"] == 0
    assert detail(service, "good-2")["unlabelled"] == 30
