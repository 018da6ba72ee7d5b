"""Tests the OpenAPI document; `python -m tests.unit.api.test_openapi` writes openapi.json."""

import json
from pathlib import Path
from typing import Any

import httpx

from app.api.document import record_meanings
from scope_judge import records
from tests.serving import application_of

COMMITTED = Path(__file__).with_name("openapi.json")


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(application_of().openapi()))
    # The version changes with every release, the interface does not.
    del found["info"]["version"]
    return found


def test_the_interface_is_the_committed_one() -> None:
    assert schema() == json.loads(COMMITTED.read_text(encoding="utf-8"))


async def test_the_document_is_written_once_and_sent_as_it_is() -> None:
    app = application_of()
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        answer = await client.get("/openapi.json")
    assert answer.json() == app.openapi()
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.content == app.state.openapi


def test_every_field_and_parameter_is_described() -> None:
    found = schema()
    described = {
        (name, field): about
        for name, shape in found["components"]["schemas"].items()
        for field, about in shape["properties"].items()
        # A record describes itself.
        if "$ref" not in str(about)
    } | {
        (path, parameter["name"]): parameter
        for path, operations in found["paths"].items()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    }
    assert [place for place, about in described.items() if not about.get("description")] == []


def test_a_record_describes_its_fields_in_its_docstring() -> None:
    schemas = schema()["components"]["schemas"]
    declared = {name: record for name, record in vars(records).items() if name in schemas}
    for name, record in declared.items():
        assert set(record_meanings(record)) <= set(schemas[name]["properties"]), name


if __name__ == "__main__":
    COMMITTED.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
