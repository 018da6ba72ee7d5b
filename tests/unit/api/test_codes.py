"""The OpenAPI document lists every error code, at the routes that can answer with it."""

from typing import Any

from app.api.answers.problems import STATUS
from app.api.responses import error_responses
from app.core.errors import MethodNotAllowedError, RouteNotFoundError
from tests.serving import application_of


def documented() -> dict[str, Any]:
    found: dict[str, Any] = application_of().openapi()
    return found


def test_the_documented_codes_are_a_closed_set_and_exactly_those_of_the_table() -> None:
    code = documented()["components"]["schemas"]["Problem"]["properties"]["code"]
    assert code["enum"] == [error.code for error in STATUS]


def test_every_code_is_documented_at_the_routes_that_can_answer_with_it() -> None:
    described = " ".join(
        response["description"]
        for methods in documented()["paths"].values()
        for operation in methods.values()
        for status, response in operation["responses"].items()
        if int(status) >= 400
    )
    # An unknown path or method belongs to no route, and an error of one item refuses no request.
    nowhere = {MethodNotAllowedError.code, RouteNotFoundError.code}
    for error in STATUS:
        assert f"`{error.code}`" in described or error.code in nowhere, error.code


def test_a_routes_problems_stand_under_the_statuses_of_the_table() -> None:
    for error, status in STATUS.items():
        assert f"`{error.code}`" in error_responses(error)[status]["description"]


def test_no_route_documents_the_frameworks_own_error() -> None:
    found = documented()["components"]["schemas"]
    assert not {"HTTPValidationError", "ValidationError"} & set(found)
