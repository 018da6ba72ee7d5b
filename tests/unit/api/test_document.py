"""Tests of the descriptions of fields in the OpenAPI document."""

from typing import Any

from app.api.document import record_meanings
from scope_judge import records
from tests.serving import application_of


def schemas() -> dict[str, Any]:
    found: dict[str, Any] = application_of().openapi()["components"]["schemas"]
    return found


def test_every_field_and_parameter_is_described() -> None:
    fields = {
        (name, field): about
        for name, schema in schemas().items()
        for field, about in schema["properties"].items()
    }
    parameters = {
        (path, parameter["name"]): parameter
        for path, operations in application_of().openapi()["paths"].items()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    }
    described = fields | parameters
    assert [place for place, about in described.items() if not about.get("description")] == []


def test_a_record_describes_its_fields_in_its_docstring() -> None:
    found = schemas()
    declared = {name: record for name, record in vars(records).items() if name in found}
    assert {"SingleJudgment", "JudgmentBatch", "SingleRewards", "Info", "Problem"} <= set(declared)
    for name, record in declared.items():
        meanings = record_meanings(record)
        assert set(meanings) == set(found[name]["properties"]), name
    limit = found["Limits"]["properties"]["max_batch"]["description"]
    assert limit == "Most comparisons in one request."
    # An inherited field; a sentence over several lines, and JSON's word for None.
    assert found["SingleJudgment"]["properties"]["preferred"]["description"].endswith(
        "even if it abstains; null if it has no preference."
    )
