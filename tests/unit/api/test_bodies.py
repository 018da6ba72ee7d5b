"""Tests of JSON bodies: limits, and that large ones get the same answers but use a thread."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from app.api.routing import LARGE_BYTES
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem

JSON = {"Content-Type": "application/json", "X-Request-Id": "same"}
SPACE = " " * LARGE_BYTES


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of() as client:
        await calibrated(client)
        yield client


async def both(
    client: httpx.AsyncClient, path: str, written: str
) -> tuple[httpx.Response, httpx.Response]:
    """The answers to a body, and to the same body with white space that makes it large."""
    small = await client.post(path, content=written, headers=JSON)
    large = await client.post(path, content=SPACE + written, headers=JSON)
    return small, large


HALF = '"\\ud800"'
BODIES = {
    "sound": json.dumps(comparison(id="x")),
    "unknown field": json.dumps(comparison(aplha=0.1)),
    "half a pair": json.dumps(comparison())[:-1] + f', "id": {HALF}}}',
    "NaN": json.dumps(comparison(alpha=float("nan"))),
    "blank": json.dumps(comparison(question=" ")),
    "null": "null",
    "list": "[]",
    "same name twice": json.dumps(comparison(alpha=None))[:-1] + ', "alpha": 0.1}',
    "many fields": json.dumps({f"f{i}": i for i in range(50)}),
    "batch": json.dumps({"comparisons": [comparison(id=1), {}, comparison(alpha=2)]}),
    "bad criterion": json.dumps({"comparisons": [], "delta": 0.1}),
    "too many": json.dumps({"comparisons": [{}] * 2049}),
}


@pytest.mark.parametrize(
    "path", ["/judge", "/judge/batch", "/calibrate", "/calibrations/x/examples"]
)
@pytest.mark.parametrize("name", BODIES)
async def test_a_large_body_gets_the_same_bytes_as_a_small_one(
    client: httpx.AsyncClient, path: str, name: str
) -> None:
    small, large = await both(client, path, BODIES[name])
    assert large.status_code == small.status_code
    assert large.headers.items() == small.headers.items()
    assert large.content == small.content


DEEP = "[" * 400 + '"' + "\\n" * 8_250 + '"' + "]" * 400


@pytest.mark.parametrize("path", ["/judge/batch", "/rewards/group"])
@pytest.mark.parametrize("first", ['"x"', HALF])
async def test_deeply_nested_lists_are_refused_at_any_size(
    client: httpx.AsyncClient, path: str, first: str
) -> None:
    # With half of a surrogate pair, the body is read by another parser.
    body = f'{{"id":{first},"comparisons":[{",".join([DEEP] * 110)}]}}'
    answer = await client.post(path, content=body, headers=JSON)
    problem(answer, "invalid_request")
    assert len(answer.content) < 10_000
