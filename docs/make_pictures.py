"""Writes docs/guides/desk-*.png and leaderboard.png: pages in Chromium, with the bundled judge.

Usage: python -m docs.make_pictures [desk | leaderboard]      (needs chromium, two minutes)
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Page, expect

from app.demo.arena import as_item
from app.demo.pairs import demo_sets
from docs.running_service import SCOPE_JUDGE, running_service
from tests.integration.desk.browsing import open_browser, open_page

FOLDER = Path(__file__).resolve().parent / "guides"
WIDTH = 1280
# Enough for an alarm of traffic that is wrong far more often than promised.
_AUDITED = 80
_COLOURS = 128


def main() -> None:
    """Takes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=["desk", "leaderboard"])
    what = parser.parse_args().what
    for name, take in {"desk": _take_desk, "leaderboard": _take_leaderboard}.items():
        if what in (None, name):
            with TemporaryDirectory() as folder:
                take(Path(folder))


def _take_desk(folder: Path) -> None:
    settings = {"SCOPE_AUDIT_RATE": "1", "SCOPE_AUDIT_TEXTS": "on"}
    with (
        running_service(folder, settings) as url,
        httpx.Client(base_url=url, timeout=600) as client,
        open_browser() as browser,
        open_page(browser, url, width=WIDTH) as page,
    ):
        comparisons = list(islice(_wrong_pairs(), _AUDITED))
        answer = client.post("/judge/batch", json={"comparisons": comparisons})
        _take(page, "label/default")
        _ring_an_alarm(client, answer.raise_for_status().json()["results"])
        _take(page, "try")
        _take(page, "sets/default", "main section >> nth=0")
        _take(page, "watch/default")


def _take_leaderboard(folder: Path) -> None:
    """The page of the guide's commands."""
    battles, rows, board = (folder / name for name in ("battles.jsonl", "rows.jsonl", "board"))
    subprocess.run([sys.executable, "-m", "app.demo.arena", battles], check=True)
    with running_service(folder) as url:
        command = [SCOPE_JUDGE, "battles", battles, "--out", rows]
        subprocess.run(command, env={**os.environ, "SCOPE_URL": url}, check=True)
    known = folder / "battles-true-ratings.csv"
    command = [SCOPE_JUDGE, "leaderboard", rows, "--out", board, "--known-ratings", known]
    subprocess.run(command, check=True)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 10})
        page.goto((board / "leaderboard.html").as_uri())
        # From the title to the end of the explanations.
        heights = page.locator(".columns").first.bounding_box()
        assert heights is not None
        bottom = heights["y"] + heights["height"]
        path = FOLDER / "leaderboard.png"
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": bottom}
        page.screenshot(path=path, full_page=True, clip=clip)
    _shrink(path)


def _ring_an_alarm(client: httpx.Client, results: list[dict[str, Any]]) -> None:
    """Labels drawn pairs as people would whose traffic the judge does not know."""
    labels = [
        {"id": judgment["audit"]["id"], "label": "B"}
        for judgment in results
        if judgment["audit"] is not None
    ]
    client.post("/audits/labels", json={"labels": labels}).raise_for_status()


def _wrong_pairs() -> Iterator[dict[str, Any]]:
    """Pairs whose response A is wrong and a list item, which the demo judge likes."""
    for pair in demo_sets().fresh:
        right, wrong = (
            (pair.response_a, pair.response_b)
            if pair.label == "A"
            else (pair.response_b, pair.response_a)
        )
        yield {"question": pair.question, "response_a": as_item(wrong), "response_b": right}


def _take(page: Page, view: str, what: str | None = None) -> None:
    # The view before stays on the page until the next one is there.
    page.goto("about:blank")
    page.goto(f"/desk#{view}")
    expect(page.locator("main h1").first).to_be_visible()
    if view == "try":
        # The demo judge has never learnt to add, and abstains.
        page.get_by_label("Question").fill("What is 48 + 27?")
        page.get_by_label("Response A").fill("75")
        page.get_by_label("Response B").fill("76")
        page.get_by_role("button", name="Judge", exact=True).click()
        expect(page.locator(".chip")).to_have_count(1)
    if view.startswith("label"):
        expect(page.get_by_role("region", name="Question")).to_be_visible()
    elif not view.startswith("watch"):
        expect(page.locator("canvas")).to_have_count(1)
    name = f"desk-{'set' if view.startswith('sets') else view.split('/')[0]}.png"
    path = FOLDER / name
    if what is None:
        page.screenshot(path=path, full_page=True)
    else:
        page.locator(what).screenshot(path=path)
    _shrink(path)


def _shrink(path: Path) -> None:
    """Leaves the few colours that a picture of text and lines needs."""
    Image.open(path).convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    print(json.dumps({path.name: path.stat().st_size}))


if __name__ == "__main__":
    main()
