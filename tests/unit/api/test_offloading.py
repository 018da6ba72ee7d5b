"""Tests that large requests get the same answers as small ones, but use a thread."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.api.offloading import MANY_ITEMS
from app.wire import answers
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem

JSON = {"Content-Type": "application/json"}
SPACE = " " * 2**17


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
    "deep": "[" * 50_000,
    "long number": '{"id": 1' + "0" * 5000 + "}",
    "same name twice": json.dumps(comparison(alpha=None))[:-1] + ', "alpha": 0.1}',
    "many fields": json.dumps({f"f{i}": i for i in range(50)}),
    "batch": json.dumps({"comparisons": [comparison(id=1), {}, comparison(alpha=2)]}),
    "bad criterion": json.dumps({"comparisons": [], "delta": 0.1}),
    "too many": json.dumps({"comparisons": [{}] * 1001}),
}


@pytest.mark.anyio
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


@pytest.mark.anyio
@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/problem+json"]
)
@pytest.mark.parametrize("name", ["sound", "unknown field", "null", "deep"])
async def test_every_content_type_of_json_gets_the_same_bytes(
    client: httpx.AsyncClient, kind: str, name: str
) -> None:
    usual = await client.post("/judge", content=BODIES[name], headers=JSON)
    other = await client.post("/judge", content=BODIES[name], headers={"Content-Type": kind})
    assert (other.status_code, other.content) == (usual.status_code, usual.content)


@pytest.mark.anyio
async def test_a_syntax_error_in_a_large_body_is_located(
    client: httpx.AsyncClient,
) -> None:
    for body in (SPACE + "{", SPACE, SPACE + '{"a": 1,}', SPACE + "[1] x"):
        answer = await client.post("/judge", content=body, headers=JSON)
        detail = problem(answer, "invalid_request")["detail"]
        with pytest.raises(json.JSONDecodeError) as expected:
            json.loads(body)
        assert detail == (
            f"body: this is not JSON ({expected.value.msg}, at character {expected.value.pos})"
        )


@pytest.mark.anyio
async def test_a_large_body_with_a_wrong_content_type_gets_advice(
    client: httpx.AsyncClient,
) -> None:
    body = SPACE + json.dumps(comparison())
    answer = await client.post("/judge", content=body, headers={"Content-Type": "text/plain"})
    assert "Content-Type: application/json" in problem(answer, "invalid_request")["detail"]


@pytest.mark.anyio
async def test_a_large_answer_has_the_same_bytes_as_several_small_ones(
    client: httpx.AsyncClient,
) -> None:
    items = [comparison(id=i, response_a=f"quality={i / 50}") for i in range(2 * MANY_ITEMS)]
    items[3], items[MANY_ITEMS + 3] = {"id": "é"}, comparison(alpha=3)
    whole = await client.post("/judge/batch", json={"comparisons": items})
    halves = [
        await client.post("/judge/batch", json={"comparisons": half})
        for half in (items[:MANY_ITEMS], items[MANY_ITEMS:])
    ]
    first, second = (half.content.removesuffix(b"]}") for half in halves)
    start = b'{"results":['
    assert whole.content == first + b"," + second.removeprefix(start) + b"]}"
    # FastAPI writes a model like this.
    model = answers.JudgeBatchOut.model_validate_json(whole.content)
    assert whole.content == model.model_dump_json().encode()
    assert whole.headers["content-type"] == "application/json"


@pytest.mark.anyio
async def test_small_requests_use_no_thread(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("handed to a thread")

    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refused)
    batch = {"comparisons": [comparison()] * MANY_ITEMS}
    assert (await client.post("/judge", json=comparison())).status_code == 200
    assert (await client.post("/judge/batch", json=batch)).status_code == 200


@pytest.mark.anyio
async def test_too_many_new_pac_thresholds_are_refused_with_retry_after(
    client: httpx.AsyncClient,
) -> None:
    def batch(number: int) -> dict[str, Any]:
        alphas = [0.2 + (32 * number + i) / 10_000 for i in range(32)]
        return {"comparisons": [comparison(guarantee="pac", alpha=alpha) for alpha in alphas]}

    # At most 256 thresholds can wait.
    sent = [client.post("/judge/batch", json=batch(number)) for number in range(12)]
    got = await asyncio.gather(*sent)
    refused = [answer for answer in got if answer.status_code != 200]
    assert refused
    for answer in refused:
        assert "thresholds" in problem(answer, "overloaded")["detail"]
    judged = [answer for answer in got if answer.status_code == 200]
    assert len(judged) >= 8
    for answer in judged:
        results = answer.json()["results"]
        assert all(result["verdict"] for result in results)
    again = await client.post("/judge/batch", json=batch(11))
    assert again.status_code == 200
    # The answer has the requested alpha, not the rounded one.
    asked = comparison(guarantee="pac", alpha=0.234567)
    rounded = comparison(guarantee="pac", alpha=0.2345)
    first, second = [(await client.post("/judge", json=body)).json() for body in (asked, rounded)]
    assert first.pop("alpha") == 0.234567
    assert second.pop("alpha") == 0.2345
    assert first == second
