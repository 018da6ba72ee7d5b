"""Writes docs/guides/desk-*.png and leaderboard.png: pages in Chromium, with the bundled judge.

Usage: python -m docs.tools.make_pictures [desk | leaderboard]      (needs chromium, four minutes)
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from app.demo.arena import as_item
from app.demo.pairs import Pair, demo_sets
from docs.tools.running_service import SCOPE_JUDGE, running_service
from tests.integration.desk.browsing import open_browser, open_page

FOLDER = Path(__file__).resolve().parents[1] / "guides"
WIDTH = 1280
# Enough for an alarm of traffic that is wrong far more often than promised.
_WRONG = 60
_RIGHT = 60
_POOL = 120
_COLORS = 128
# A service in which labels count at once, and not in an hour.
_SERVE_AT_ONCE = (
    sys.executable,
    "-c",
    "from app.cli import main; from tests.completed_questions import complete_questions; "
    "complete_questions(); main()",
    "serve",
)


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
    settings = {
        "SCOPE_AUDIT_RATE": "1",
        "SCOPE_AUDIT_TEXTS": "on",
    }
    with (
        running_service(folder, settings, command=_SERVE_AT_ONCE) as url,
        httpx.Client(base_url=url, timeout=600) as client,
        open_browser() as browser,
        open_page(browser, url, width=WIDTH) as page,
    ):
        _DeskPictures(client, page, folder).take()


def _take_leaderboard(folder: Path) -> None:
    """The page of the guide's commands."""
    names = ("first.jsonl", "battles.jsonl", "rows.jsonl", "board")
    first, battles, rows, board = (str(folder / name) for name in names)
    arena = [sys.executable, "-m", "app.demo.arena"]
    subprocess.run([*arena, first, "--count", "600", "--labelled", "1", "--seed", "1"], check=True)
    subprocess.run([*arena, battles], check=True)
    with running_service(folder) as url:
        for command in (
            [SCOPE_JUDGE, "calibrate", first, "--name", "arena"],
            [SCOPE_JUDGE, "battles", battles, "--calibration", "arena", "--out", rows],
        ):
            subprocess.run(command, env={**os.environ, "SCOPE_URL": url}, check=True)
    subprocess.run([SCOPE_JUDGE, "leaderboard", rows, "--out", board], check=True)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 10})
        page.goto((folder / "board" / "leaderboard.html").as_uri())
        # From the title to the end of the explanations.
        heights = page.locator(".columns").first.bounding_box()
        assert heights is not None
        bottom = heights["y"] + heights["height"]
        path = FOLDER / "leaderboard.png"
        page.screenshot(
            path=path,
            full_page=True,
            clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom},
        )
    _shrink(path)


class _DeskPictures:
    """The pictures of the desk of one service, in the order in which things happen to it."""

    def __init__(self, client: httpx.Client, page: Page, folder: Path) -> None:
        self._client = client
        self._page = page
        self._folder = folder
        self._pairs = iter(demo_sets().fresh)

    def take(self) -> None:
        right = self._judge(islice(self._pairs, _RIGHT))
        question = self._page.get_by_role("region", name="Question")
        self._picture("label", "label/default", until=question)
        self._try()
        canvas = self._page.locator("canvas")
        self._picture("set", "sets/default", until=canvas, of="main section >> nth=1")
        self._pool()
        self._label({id: label for id, label in right.items() if id in self._open()})
        wrong = self._judge(map(_as_wrong_list, islice(self._pairs, _WRONG)))
        self._label(wrong)
        alarm = self._page.get_by_text("judged so far")
        self._picture("watch", "watch/default", until=alarm)
        self._recover()

    def _judge(self, pairs: Iterable[Pair]) -> dict[str, str]:
        """Judges pairs; returns the right label of each audit by its id."""
        given = list(pairs)
        body = {"comparisons": [_comparison(pair) for pair in given]}
        answer = self._client.post("/judge/batch", json=body).raise_for_status()
        return {
            judgment["audit"]["id"]: pair.label
            for judgment, pair in zip(answer.json()["results"], given, strict=True)
        }

    def _label(self, labels: Mapping[str, str]) -> None:
        sent = [{"id": id, "label": label} for id, label in labels.items()]
        self._client.post("/audits/labels", json={"labels": sent}).raise_for_status()

    def _open(self) -> set[str]:
        listed = self._client.get("/audits?status=open&limit=1000").raise_for_status().json()
        return {audit["id"] for audit in listed["audits"]}

    def _try(self) -> None:
        self._page.goto("about:blank")
        self._page.goto("/desk#try")
        # The demo judge has never learnt to add, and abstains.
        self._page.get_by_label("Question").fill("What is 48 + 27?")
        self._page.get_by_label("Response A").fill("75")
        self._page.get_by_label("Response B").fill("76")
        self._page.get_by_role("button", name="Judge", exact=True).click()
        self._picture("try", None, until=self._page.locator("canvas"))

    def _pool(self) -> None:
        """A new set of pairs without labels, the ways to label them, and both sets on Home."""
        pairs = [_comparison(pair) for pair in islice(self._pairs, _POOL)]
        path = self._folder / "pairs.jsonl"
        path.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs), encoding="utf-8")
        self._page.goto("about:blank")
        self._page.goto("/desk#home")
        self._page.get_by_label("Name").fill("mine")
        self._page.get_by_label("File of pairs").set_input_files(path)
        self._page.get_by_role("button", name="Judge and preview").click()
        self._page.get_by_role("button", name="Make it").click()
        self._picture("pool", None, until=self._page.get_by_role("link", name="Label all"))
        both = self._page.get_by_role("link", name="Label them")
        self._picture("home", "home", until=both)

    def _recover(self) -> None:
        """The question before the labels that end the alarm."""
        monitor = self._client.get("/calibrations/default/monitor").raise_for_status().json()
        self._label(self._judge(islice(self._pairs, monitor["recovery"]["audits"])))
        self._page.goto("about:blank")
        self._page.goto("/desk#watch/default")
        self._page.get_by_role("button", name="End the alarm").click()
        dialog = self._page.get_by_role("dialog")
        self._picture("recovery", None, until=dialog, whole=False)

    def _picture(
        self,
        name: str,
        view: str | None,
        *,
        until: Locator,
        of: str | None = None,
        whole: bool = True,
    ) -> None:
        """Takes a picture once something is there.

        Args:
            name: Name of the picture.
            view: The view; None for the one that is open.
            until: The thing that has to be there.
            of: The part of the page; None for all of it.
            whole: Whether the picture has what is below the window.
        """
        if view is not None:
            # The view before stays on the page until the next one is there.
            self._page.goto("about:blank")
            self._page.goto(f"/desk#{view}")
        expect(until.first).to_be_visible()
        path = FOLDER / f"desk-{name}.png"
        if of is None:
            self._page.screenshot(path=path, full_page=whole)
        else:
            self._page.locator(of).first.screenshot(path=path)
        _shrink(path)


def _comparison(pair: Pair) -> dict[str, Any]:
    return {name: getattr(pair, name) for name in ("question", "response_a", "response_b")}


def _as_wrong_list(pair: Pair) -> Pair:
    """The pair with its wrong response first and as a list item, which the demo judge likes."""
    right, wrong = (
        (pair.response_a, pair.response_b)
        if pair.label == "A"
        else (pair.response_b, pair.response_a)
    )
    return pair._replace(response_a=as_item(wrong), response_b=right, label="B")


def _shrink(path: Path) -> None:
    """Leaves the few colors that a picture of text and lines needs."""
    Image.open(path).convert("RGB").quantize(_COLORS).save(path, optimize=True)
    print(json.dumps({path.name: path.stat().st_size}))


if __name__ == "__main__":
    main()
