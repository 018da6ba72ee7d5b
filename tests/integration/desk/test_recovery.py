"""An alarm is ended on the page, and the judge gives verdicts again where it is still right."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.desk.browsing import label_pairs, open_page
from tests.integration.desk.worlds import SETTINGS, calibrate, judged
from tests.integration.processes.server import Server

# A recovery needs 50 labels at this alpha, and 200 at 10%.
ALPHA = 0.2
ALARMING, LATER = 60, 100
SURE, UNSURE = 4.0, 1.5


def traffic(count: int, *, start: int, has_changed: bool) -> list[dict[str, Any]]:
    """Pairs of which the judge is in turn sure, and right, and less sure.

    Args:
        count: Number of pairs.
        start: Number of the first question.
        has_changed: Whether the judge is wrong in all of which it is less sure; one in ten before.
    """
    rng = random.Random(start)
    found = []
    for number in range(start, start + count):
        gap = (SURE, UNSURE)[number % 2]
        side = rng.choice((-1, 1))
        is_right = number % 2 == 0 or (not has_changed and number % 20 != 1)
        found.append(
            {
                "question": f"Question {number}?",
                "response_a": f"quality={side * gap:.6f}",
                "response_b": "quality=0",
                "label": "A" if (side > 0) == is_right else "B",
            }
        )
    return found


def labeled(service: Server, pairs: list[dict[str, Any]]) -> None:
    """Judges pairs and sends their labels."""
    judgments = judged(service.client, "default", pairs, alpha=ALPHA)
    labels = [
        {"id": judgment["audit"]["id"], "label": pair["label"]}
        for pair, judgment in zip(pairs, judgments, strict=True)
    ]
    service.client.post("/audits/labels", json={"labels": labels}).raise_for_status()


def verdict(service: Server, *, gap: float) -> str:
    """The verdict of POST /judge on a pair of which the judge prefers A."""
    pair = {"question": f"Gap {gap}?", "response_a": f"quality={gap}", "response_b": "quality=0"}
    body = {"calibration": "default", "alpha": ALPHA, **pair}
    answer = service.client.post("/judge", json=body).raise_for_status()
    return str(answer.json()["verdict"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, {**SETTINGS, "SCOPE_AUDIT_TEXTS": "on"}) as server:
        calibrate(server.client, "default", traffic(100, start=0, has_changed=False))
        yield server


def test_an_alarm_ends_on_the_page_and_the_judge_gives_verdicts_again(
    service: Server, browser: Browser
) -> None:
    labeled(service, traffic(ALARMING, start=1000, has_changed=True))
    monitor = service.client.get("/calibrations/default/monitor").json()
    assert (monitor["light"], monitor["version"]) == ("red", 1)
    needed = monitor["recovery"]["audits"]
    since = traffic(needed, start=2000, has_changed=True)
    judged(service.client, "default", since, alpha=ALPHA)
    with open_page(browser, service.url) as page:
        better = {row["question"]: row[f"response_{row['label'].lower()}"] for row in since}
        state = page.get_by_role("region", name="State")
        page.goto("/desk")
        page.get_by_role("link", name="Label today's pairs").click()
        done = page.get_by_text("the new labels of default are complete")
        sends = page.get_by_role("button", name="Send it")
        assert label_pairs(page, better, sends) == needed
        sends.click()
        expect(done).to_be_visible()
        page.get_by_role("link", name="End the alarm").click()
        expect(state).to_contain_text(f"{needed} of {needed} labeled")
        state.get_by_role("button", name="End the alarm").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"The {needed} labels since the alarm replace all others")
        expect(dialog).to_contain_text("This ends an alarm: 20%")
        expect(dialog).to_contain_text("get a verdict")
        assert service.client.get("/calibrations/default").json()["version"] == 1
        dialog.get_by_role("button", name="End the alarm").click()
        expect(dialog).to_have_count(0)
        # Nobody has checked the new version yet.
        expect(state).to_contain_text("With care")
        expect(state.get_by_role("heading")).to_contain_text("You may use it at")
        expect(page.get_by_text("Alarm:")).to_have_count(0)
        labeled(service, traffic(LATER, start=3000, has_changed=True))
        page.reload()
        expect(state).to_contain_text("No sign of trouble")
    versions = service.client.get("/calibrations/default/versions").json()["versions"]
    assert (versions[0]["by"], versions[0]["n"]) == ("Tess", needed)
    monitor = service.client.get("/calibrations/default/monitor").json()
    assert (monitor["light"], monitor["version"]) == ("green", 2)
    assert (verdict(service, gap=SURE), verdict(service, gap=UNSURE)) == ("A", "abstain")
