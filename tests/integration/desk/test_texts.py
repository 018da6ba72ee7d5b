"""Texts that only the person has: a file of pairs that the browser reads and never sends."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Request, expect

from tests.integration.desk.browsing import barriers, open_page, overflow
from tests.integration.desk.test_label import labels_of, senders_of, shown
from tests.integration.desk.worlds import SETTINGS, calibrate, judged, pairs
from tests.integration.processes.server import Server

ROWS = 100_000
MARKDOWN = {
    "question": "**Bold** <img src=x onerror=alert(1)> ![x](https://evil.example/x.png)\n\n- one",
    "response_a": "quality=1 <script>document.title = 'owned'</script>",
    "response_b": "quality=0 [link](https://evil.example)",
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """A service with open audits and none of their texts."""
    with Server(tmp_path, dict(SETTINGS)) as server:
        calibrate(server.client, "default", pairs(100, start=0))
        judged(server.client, "default", [MARKDOWN, *pairs(5, start=1000)])
        yield server


def test_pairs_of_a_file_are_labelled_and_nothing_of_it_is_sent(
    service: Server, browser: Browser, tmp_path: Path
) -> None:
    known = [
        MARKDOWN,
        *({k: v for k, v in p.items() if k != "label"} for p in pairs(4, start=1000)),
    ]
    # The file has one of the pairs with its responses swapped.
    swapped = {
        **known[1],
        "response_a": known[1]["response_b"],
        "response_b": known[1]["response_a"],
    }
    path = tmp_path / "judged.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            row = {"question": f"Filler {number}?", "response_a": "yes", "response_b": "no"}
            place, rest = divmod(number, ROWS // 5)
            here = (swapped if place == 1 else known[place]) if rest == 7 else row
            file.write(f"{json.dumps(here)}\n")
    audits = service.client.get("/audits").raise_for_status().json()["audits"]
    expected = dict[str, str]()
    sent: list[str] = []

    def keep(request: Request) -> None:
        sent.append(request.url + (request.post_data or ""))

    with open_page(browser, f"http://127.0.0.1:{service.port}") as page:
        page.on("request", keep)
        page.goto("/desk#label/default")
        expect(page.get_by_text("their texts are not here")).to_be_visible()
        assert barriers(page) == []
        page.get_by_label("File of pairs").set_input_files(path)
        expect(page.get_by_text("5 of the 6 open audits")).to_be_visible()
        for number, pair in enumerate(known):
            expect(page.get_by_role("region", name="Question")).to_have_text(pair["question"])
            if number == 0:
                page.get_by_role("button", name="Markdown").click()
                question = page.get_by_role("region", name="Question")
                expect(question.locator("strong")).to_have_text("Bold")
                expect(question.locator("li")).to_have_text("one")
                assert page.locator(".markdown img, .markdown a, .markdown script").count() == 0
                assert barriers(page) == []
                assert overflow(page) <= 0
                page.get_by_role("button", name="Markdown").click()
            _, left = shown(page)
            expected[audits[number]["id"]] = "A" if left == pair["response_a"] else "B"
            page.keyboard.press("1")
        page.get_by_role("button", name="Send it").click()
        assert len(senders_of(service, 5)) == 5
        expect(page.get_by_text("their texts are not here")).to_be_visible()
        assert page.title() == "scope-judge desk"
    assert labels_of(service) == expected
    assert len(expected) == 5
    told = "".join(sent)
    assert "/queue/answers" in told
    assert not [word for word in ("Filler", "quality", "Question", "Bold") if word in told]
