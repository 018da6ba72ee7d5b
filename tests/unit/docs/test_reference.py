"""The pages of docs/reference/ are up to date; `make reference` writes them."""

import re

import pytest

from app.settings import Settings
from docs.tools import make_reference


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_a_reference_page_is_the_one_that_the_code_makes(name: str) -> None:
    written = (make_reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == make_reference.PAGES[name](), "run: python docs/tools/make_reference.py"


def test_every_page_of_the_reference_is_made() -> None:
    found = {file.name for file in make_reference.FOLDER.glob("*.md")}
    assert found == set(make_reference.PAGES)


def test_every_setting_has_a_row_with_its_default_and_meaning() -> None:
    rows = [
        [cell.strip() for cell in line.split(" | ")]
        for line in make_reference.settings_page().splitlines()
        if line.startswith("| `SCOPE_")
    ]
    found = {row[0].removeprefix("| "): (row[1], row[-1]) for row in rows}
    assert len(found) == len(rows) == len(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        default, meaning = found[f"`SCOPE_{name.upper()}`"]
        assert default == ("" if field.default in (None, "") else f"`{field.default}`")
        assert meaning.startswith(str(field.description))


def test_every_route_that_answers_with_json_has_an_example_or_a_page() -> None:
    page = make_reference.http_page()
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    without = {name for name, text in sections.items() if "```json" not in text}
    assert without == {"Routes", "Common fields", *make_reference.SHOWN_ELSEWHERE}
    # A route without a link has no section.
    assert re.findall(r"^\| `(.+?)` \|", sections["Routes"], re.MULTILINE) == ["GET /metrics"]
