"""The pages of docs/reference/ are up to date; `python docs/make_reference.py` writes them."""

import pytest

from app.settings import Settings
from docs import make_reference


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_a_reference_page_is_the_one_that_the_code_makes(name: str) -> None:
    written = (make_reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == make_reference.PAGES[name](), "run: python docs/make_reference.py"


def test_every_page_of_the_reference_is_made() -> None:
    found = {file.name for file in make_reference.FOLDER.glob("*.md")}
    assert found == set(make_reference.PAGES)


def test_every_setting_has_a_row_with_its_default_and_meaning() -> None:
    rows = [
        [cell.strip() for cell in line.split(" | ")]
        for line in make_reference.settings_page().splitlines()
        if line.startswith("| `SCOPE_")
    ]
    found = [(row[0].removeprefix("| "), row[1], row[-1].removesuffix(" |")) for row in rows]
    expected = [
        (
            f"`SCOPE_{name.upper()}`",
            "" if field.default in (None, "") else f"`{field.default}`",
            field.description,
        )
        for name, field in Settings.model_fields.items()
    ]
    assert sorted(found) == sorted(expected)


def test_an_object_has_the_fields_that_it_extends() -> None:
    schemas = make_reference.document()["components"]["schemas"]
    for name, base in make_reference.FIELDS["extends"].items():
        fields, inherited = schemas[name]["properties"], schemas[base]["properties"]
        assert {field: fields.get(field) for field in inherited} == inherited, name


def test_every_described_field_exists() -> None:
    schemas = make_reference.document()["components"]["schemas"]
    every = {field for schema in schemas.values() for field in schema["properties"]}
    for group, described in make_reference.FIELDS.items():
        if group not in ("parameters", "extends"):
            known = every if group == "any" else set(schemas[group]["properties"])
            assert set(described) <= known, group
