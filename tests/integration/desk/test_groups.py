"""A group of the traffic that goes bad is named on the page Watch."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.integration.desk.browsing import open_page
from tests.integration.desk.worlds import SETTINGS, calibrate, judged, pairs
from tests.integration.processes.server import Server


def test_a_group_that_goes_bad_is_named(browser: Browser, tmp_path: Path) -> None:
    settings = {**SETTINGS, "SCOPE_GROUPS": "math,code"}
    with Server(tmp_path, settings) as server:
        calibrate(server.client, "default", pairs(400, start=0))
        for start, group in ((1000, "math"), (2000, "code")):
            # The judge is sure of all pairs, and wrong in half of those of code.
            given = [{**pair, "group": group} for pair in pairs(120, start=start, gap=4.0)]
            labels = [
                {"id": judgment["audit"]["id"], "label": "AB"[number % 2 * (group == "code")]}
                for number, judgment in enumerate(judged(server.client, "default", given))
            ]
            server.client.post("/audits/labels", json={"labels": labels}).raise_for_status()
        with open_page(browser, f"http://127.0.0.1:{server.port}") as page:
            page.goto("/desk#watch/default")
            state = page.get_by_role("region", name="State")
            expect(state).to_contain_text("Alarm")
            expect(state).to_contain_text("In the group code, ")
            rows = page.get_by_role("group", name="By group").locator("tbody tr")
            expect(rows).to_have_count(2)
            expect(rows.filter(has_text="alarm since")).to_have_count(1)
            expect(rows.filter(has_text="alarm since").get_by_role("rowheader")).to_contain_text(
                "code"
            )
