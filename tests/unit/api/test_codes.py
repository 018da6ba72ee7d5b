"""The OpenAPI document lists every error code."""

from typing import Any

from app.api.problems import STATUS
from tests.serving import application_of


def documented() -> dict[str, Any]:
    found: dict[str, Any] = application_of().openapi()
    return found


def test_the_documented_codes_are_a_closed_set_and_exactly_those_of_the_table() -> None:
    code = documented()["components"]["schemas"]["Problem"]["properties"]["code"]
    assert code["enum"] == [error.code for error in STATUS]


def test_no_route_documents_the_frameworks_own_error() -> None:
    found = documented()["components"]["schemas"]
    assert not {"HTTPValidationError", "ValidationError"} & set(found)
