"""Checks of error responses, and the requests that many tests send."""

from typing import Any

import httpx

from app.api.problems import STATUS

STATUS_OF_CODE = {error.code: status for error, status in STATUS.items()}


def problem(response: httpx.Response, code: str) -> dict[str, Any]:
    """The body of an error response, after the checks that every error response must pass."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body: dict[str, Any] = response.json()
    assert body["code"] == code, body
    assert response.status_code == body["status"] == STATUS_OF_CODE[code]
    assert body["type"] == f"urn:scope-judge:problem:{code}"
    assert body["title"]
    assert body["detail"]
    assert set(body) <= {"type", "title", "status", "detail", "code", "errors"}
    assert len(body.get("errors", ())) <= 10
    retried = response.status_code in (429, 503, 504)
    assert ("retry-after" in response.headers) == retried
    if retried:
        assert int(response.headers["retry-after"]) >= 1
    return body


def comparison(**fields: Any) -> dict[str, Any]:
    """The body of a valid POST /judge, changed by the given fields."""
    valid = {"question": "Which?", "response_a": "quality=3.9", "response_b": "quality=0"}
    return {**valid, **fields}


def examples(n: int = 60, *, right: bool = True) -> list[dict[str, Any]]:
    """n labeled examples with gaps in (0, 4]; the judge is right on all of them, or on none."""
    return [
        {
            "question": f"Question {i}?",
            "response_a": f"quality={4 * i / n}",
            "response_b": "quality=0",
            "label": "A" if right else "B",
        }
        for i in range(1, n + 1)
    ]


def hard_examples() -> list[dict[str, Any]]:
    """60 labeled examples, where the judge is wrong on half of the pairs with a gap below 2."""
    found = examples(60)
    for each in found[:30:2]:
        each["label"] = "B"
    return found


async def calibrated(client: httpx.AsyncClient, n: int = 60) -> dict[str, Any]:
    """Makes the default calibration set through HTTP."""
    response = await client.post("/calibrate", json={"examples": examples(n)})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
