"""A number that JSON does not have never becomes null, which has a meaning in answers."""

import math

import httpx
import pytest
from fastapi import FastAPI, Response

from app.api import problems
from app.api.answers.making import as_json
from scope_judge.records import AuditReference


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_an_answer_with_a_number_that_is_not_finite_is_a_defect(number: float) -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    async def answer() -> Response:
        return as_json(lambda: AuditReference(id="drawn", rate=number))

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
