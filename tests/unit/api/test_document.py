"""Tests of the descriptions of fields in the OpenAPI document."""

import tomllib
from typing import Any

import pytest

from app.api import document
from app.api.document import describe_fields, record_meanings
from scope_judge import records
from tests.serving import application_of


def meanings() -> dict[str, dict[str, str]]:
    return tomllib.loads(document._FILE.read_text(encoding="utf-8"))


def schemas() -> dict[str, Any]:
    found: dict[str, Any] = application_of().openapi()["components"]["schemas"]
    return found


def test_every_field_is_described() -> None:
    undescribed = [
        (name, field)
        for name, schema in schemas().items()
        for field, about in schema["properties"].items()
        if not about["description"]
    ]
    assert undescribed == []


def test_an_object_tells_the_meaning_of_its_base() -> None:
    answer, judgment = schemas()["SingleJudgment"], schemas()["Judgment"]
    assert answer["properties"]["p_bar"] == judgment["properties"]["p_bar"]


def test_a_record_describes_its_fields_in_its_docstring() -> None:
    found = schemas()
    declared = {name: record for name, record in vars(records).items() if name in found}
    assert {"SingleJudgment", "JudgmentBatch", "SingleRewards", "Info", "Problem"} <= set(declared)
    for name, record in declared.items():
        meanings = record_meanings(record)
        assert set(meanings) == set(found[name]["properties"]), name
    limit = found["Limits"]["properties"]["max_batch"]["description"]
    assert limit == "Most comparisons in one request."
    # A sentence over several lines, and JSON's word for None.
    assert found["Judgment"]["properties"]["preferred"]["description"].endswith(
        "even if it abstains; null if it has no preference."
    )


def test_every_described_field_exists() -> None:
    known = {name: set(schema["properties"]) for name, schema in schemas().items()}
    found = meanings()
    assert set(found.pop("any")) <= set().union(*known.values())
    assert set(found.pop("extends")) <= set(known)
    del found["parameters"]
    for name, described in found.items():
        assert set(described) <= known[name], name


def test_a_field_without_a_meaning_is_refused() -> None:
    made: dict[str, Any] = {
        "components": {"schemas": {"New": {"properties": {"unheard": {}}}}},
        "paths": {},
    }
    with pytest.raises(KeyError, match="describe unheard of New"):
        describe_fields(made)
