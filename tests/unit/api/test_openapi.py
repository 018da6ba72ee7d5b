"""Tests the OpenAPI document; `python -m tests.unit.api.test_openapi` writes openapi.json."""

import json
import re
from pathlib import Path
from typing import Any

import httpx

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


def test_every_reference_leads_somewhere() -> None:
    found = schema()
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(found)))
    assert names <= set(found["components"]["schemas"])


def test_every_route_documents_problems_as_they_are_sent() -> None:
    for path, methods in schema()["paths"].items():
        for method, operation in methods.items():
            responses = operation["responses"]
            assert "default" not in responses, "it would allow every status"
            for status in ("4XX", "5XX"):
                problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
                found = responses[status]["content"]
                assert found == {"application/problem+json": problem}, (method, path, status)


if __name__ == "__main__":
    COMMITTED.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
