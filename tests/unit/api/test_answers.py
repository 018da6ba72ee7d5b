"""A number that JSON does not have, and a field that an object fails to compute, are errors."""

import math
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Response

from app.api import problems
from app.api.routing import as_json, made
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


@dataclass
class Record:
    name: str = "default"


class Broken:
    @property
    def name(self) -> str:
        of_nothing: Any = None
        return str(of_nothing.name)


def test_a_broken_property_is_no_missing_field() -> None:
    assert made(Record, object()) == Record("default")
    with pytest.raises(AttributeError, match="no attribute 'name'"):
        made(Record, Broken())
