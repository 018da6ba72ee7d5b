"""Two people label the same pairs on the desk, and a third one decides where they disagree."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.desk.browsing import barriers, open_page, overflow
from tests.integration.desk.test_label import labels_of, press, send, shown
from tests.integration.desk.worlds import SETTINGS, calibrate, judged, pairs
from tests.integration.processes.server import Server

PAIRS = 5
ADDRESS = "/desk#label/default?reviewers=2"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {**SETTINGS, "SCOPE_AUDIT_TEXTS": "on"}
    with Server(tmp_path_factory.mktemp("desk"), settings) as server:
        calibrate(server.client, "default", pairs(100, start=0))
        judged(server.client, "default", pairs(PAIRS, start=1000))
        yield server


def label(page: Page, *, ties: int) -> list[str]:
    """Labels all pairs: the last ones as ties, the others by the longer response, in order."""
    questions = []
    for number in range(PAIRS):
        question, left = shown(page)
        questions.append(question)
        key = "t" if number >= PAIRS - ties else "1" if left != "quality=0" else "2"
        if number < PAIRS - 1:
            press(page, key)
        else:
            page.keyboard.press(key)
    send(page)
    return questions


def test_two_people_label_the_same_pairs_and_disagreements_are_decided(
    service: Server, browser: Browser
) -> None:
    url = f"http://127.0.0.1:{service.port}"
    with open_page(browser, url) as one, open_page(browser, url, width=390) as other:
        one.goto("/desk#label/default")
        one.get_by_label("Two people label each pair").check()
        expect(one).to_have_url(f"{url}{ADDRESS}")
        other.goto(ADDRESS)
        assert set(label(one, ties=0)) == set(label(other, ties=2))
        assert list(labels_of(service).values()) == ["A"] * (PAIRS - 2)
        agreement = other.get_by_role("region", name="Agreement", exact=True)
        expect(agreement).to_contain_text("People disagreed on 2 of 5 pairs")
        expect(agreement).to_contain_text("2 disagreements to decide")
        expect(agreement).to_contain_text("the other that both are equally good")
        assert overflow(other) <= 0
        assert barriers(other) == []
        left = agreement.get_by_role("region", name="Left response").text_content()
        better = "right" if left == "quality=0" else "left"
        agreement.get_by_role("button", name=f"Decide: {better} is better").click()
        expect(agreement).to_contain_text("1 disagreement to decide")
        agreement.get_by_label("Or why nobody can label it").fill("no question")
        agreement.get_by_role("button", name="Close this pair").click()
        expect(agreement.get_by_role("heading")).to_have_count(0)
        expect(agreement).to_contain_text("People disagreed on 2 of 5 pairs")
    assert sorted(labels_of(service).values()) == ["A"] * (PAIRS - 1) + ["none"]
