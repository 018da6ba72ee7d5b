"""Tests of invalid requests: each gets a short problem and changes nothing."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, problem

JSON = {"Content-Type": "application/json"}
HALF = "\ud800"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a calibrated service; no test may change the calibration set."""
    async with client_of() as client:
        await calibrated(client)
        before = (await client.get("/calibrations")).json()
        yield client
        assert (await client.get("/calibrations")).json() == before
        assert (await client.post("/judge", json=comparison())).json()["verdict"] == "A"


async def send(client: httpx.AsyncClient, body: Any, path: str = "/judge") -> httpx.Response:
    """Posts JSON as Python writes it, including NaN and halves of surrogate pairs."""
    return await client.post(path, content=json.dumps(body), headers=JSON)


NAN, INF = float("nan"), float("inf")
WRONG_VALUES: dict[str, list[Any]] = {
    "alpha": [0, 1, -1, 1.5, NAN, INF, -INF, "0.1", True, [], {}],
    "delta": [0, 1, NAN, "0.1", True],
    "guarantee": ["PAC", "", 3, ["pac"]],
    "calibration": ["", "a b", "a/b", ".a", "é", "a\n", "x" * 65, 3],
    "question": [
        3,
        None,
        {},
        True,
        [3],
        [{}],
        [{"role": "tool", "content": "x"}],
        f"a{HALF}b",
        [{"role": "user", "content": "x", "name": "y"}],
        [{"role": "user", "content": HALF}],
    ],
    "response_a": [3, None, {}, True, f"a{HALF}b", [HALF]],
    "response_b": [[3], [["x"]], HALF],
    "id": [True, 1.5, [], {}, "x" * 257, HALF],
    "aplha": [0.1],
    HALF: [1],
}
BAD_FIELDS = [(field, value) for field, values in WRONG_VALUES.items() for value in values]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=lambda value: ascii(value)[:24])
async def test_an_invalid_field_is_named(client: httpx.AsyncClient, field: str, value: Any) -> None:
    response = await send(client, comparison(**{"guarantee": "pac", field: value}))
    body = problem(response, "invalid_request")
    if field != HALF:
        assert {fault["field"].split(".")[0] for fault in body["errors"]} == {field}
    # In a batch it is the error of that item, and the others are judged.
    items = [comparison(id=1), comparison(**{"guarantee": "pac", field: value}), comparison(id=3)]
    answered = await send(client, {"comparisons": items}, "/judge/batch")
    assert answered.status_code == 200, answered.text
    first, second, third = answered.json()["results"]
    assert (first["verdict"], third["verdict"]) == ("A", "A")
    assert second["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("field", ["question", "response_a", "response_b"])
@pytest.mark.parametrize("value", ["", " ", "\n\t", "\u2003", []])
async def test_a_blank_text_is_refused(client: httpx.AsyncClient, field: str, value: Any) -> None:
    problem(await send(client, comparison(**{field: value})), "invalid_comparison")


async def test_delta_without_pac_is_refused_in_item_and_batch(client: httpx.AsyncClient) -> None:
    for fields in ({"delta": 0.1}, {"delta": 0.1, "guarantee": "marginal"}):
        body = problem(await send(client, comparison(**fields)), "invalid_request")
        assert body["errors"][0]["field"] == next(iter(fields))
        batch = {**fields, "comparisons": [comparison()]}
        problem(await send(client, batch, "/judge/batch"), "invalid_request")


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_a_wrong_content_type_gets_advice(
    client: httpx.AsyncClient, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = await client.post("/judge", content=json.dumps(comparison()), headers=headers)
    body = problem(response, "invalid_request")
    assert "Content-Type: application/json" in body["detail"]


async def test_a_long_body_is_refused_without_its_length(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 2**16

    response = await client.post("/judge", content=chunks(), headers=JSON)
    assert "content-length" not in response.request.headers
    problem(response, "body_too_large")


async def test_the_batch_limit_is_exact(client: httpx.AsyncClient) -> None:
    full = {"alpha": None, "comparisons": [comparison()] * 2048}
    assert len((await send(client, full, "/judge/batch")).json()["results"]) == 2048
    over: dict[str, Any] = {"alpha": None, "comparisons": [{}] * 2049}
    body = problem(await send(client, over, "/judge/batch"), "batch_too_large")
    assert "2049" in body["detail"]
    for path in ("/calibrate", "/calibrate/scores"):
        problem(await send(client, {"examples": [{}] * 2049}, path), "batch_too_large")


async def test_an_error_never_repeats_the_input_and_stays_small(client: httpx.AsyncClient) -> None:
    secret = "xyzzy-" * 700
    bodies: Iterator[Any] = iter(
        [
            {f"field-{i}": secret for i in range(100)},
            {secret: 1},
            comparison(question=[secret] * 50),
            comparison(guarantee=secret, alpha=secret, calibration=secret, id=[secret]),
            comparison(id=secret),
        ]
    )
    for body in bodies:
        response = await send(client, body)
        problem(response, "invalid_request")
        assert len(response.content) < 3000
        assert secret[:100] not in response.text
        batch = await send(client, {"comparisons": [body]}, "/judge/batch")
        assert len(batch.content) < 3000, batch.text[:500]
        assert secret[:100] not in batch.text


async def test_an_id_is_echoed_unchanged_or_refused(client: httpx.AsyncClient) -> None:
    for identifier in ("x" * 256, "", 0, -5, 2**63, 10**400, "\U0001f600", "a\x00b"):
        response = await send(client, comparison(id=identifier))
        assert response.status_code == 200
        assert response.json()["id"] == identifier
        assert type(response.json()["id"]) is type(identifier)


UNKNOWN, FINGERPRINT = "0" * 32, "f" * 64
LABEL = {"id": UNKNOWN, "label": "A"}
# Method and path -> bodies that are refused. A misspelt or unknown field never changes a set.
REFUSED: dict[str, list[Any]] = {
    "POST /calibrations/default/rollback": [
        *({}, [], 1, {"version": 1, "to": 1}),
        *({"version": wrong} for wrong in (0, "1", 1.5, True, None, 2**53)),
    ],
    "POST /calibrations/default/pool": [
        *({}, {"comparisons": {}}, {"comparisons": None}),
        {"comparisons": [], "label": "A"},
    ],
    "POST /calibrations/default/examples": [
        {"examples": []},
        {"fingerprint": "abc", "examples": []},
        {"fingerprint": FINGERPRINT, "examples": {}},
        {"fingerprint": FINGERPRINT, "examples": [], "calibration": "x"},
    ],
    "POST /calibrations/default/absorb": [
        {field: True}
        for field in ("since", "until", "audits", "replace", "all", "begin", "unlabelled")
    ],
    "POST /audits/labels": [
        *({}, {"labels": []}, {"labels": [LABEL] * 1001}, {"labels": [{"id": UNKNOWN}]}),
        *({"labels": [{**LABEL, "id": wrong}]} for wrong in ("x", "F" * 32)),
        *({"labels": [{**LABEL, wrong: "certain"}]} for wrong in ("note", "reason")),
        {"labels": [{**LABEL, "label": "C"}]},
        {"labels": [{**LABEL, "label": "none"}]},
        *({"labels": [{**LABEL, "label": "none", "reason": x}]} for x in (" ", "x" * 201)),
    ],
    **{
        f"GET /audits?{query}": [None]
        for query in ("status=x", "limit=0", "limit=1001", "after=-1", "calibration=")
    },
    **{f"GET /calibrations?{query}": [None] for query in ("limit=0", "limit=1001")},
    **{
        f"GET /calibrations/default/next?{query}": [None]
        for query in ("alpha=0", "alpha=1", "alpha=x", "delta=1.5", "limit=0", "limit=10001")
    },
    **{
        f"DELETE /calibrations/default?{query}": [None]
        for query in ("dryrun=true", "dry_run=maybe", "dry_run=true&x=1")
    },
}


@pytest.mark.parametrize("request_line", REFUSED)
async def test_a_malformed_request_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, request_line: str
) -> None:
    method, path = request_line.split(" ")
    for body in REFUSED[request_line]:
        sent: dict[str, Any] = (
            {} if body is None else {"content": json.dumps(body), "headers": JSON}
        )
        problem(await client.request(method, path, **sent), "invalid_request")
