"""Tests that structural characters are counted exactly, however the body is split into chunks."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.middleware.json_meter import JsonMeter, most_parts
from app.core.errors import BodyTooLargeError
from tests.serving import client_of
from tests.unit.api.problems import comparison, problem

JSON = {"Content-Type": "application/json"}


def structure(text: str) -> int:
    """Counts structural characters one by one."""
    count, in_string, escaped = 0, False, False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "[{,:":
            count += 1
    return count


def refused(body: bytes, sizes: list[int], *, most: int) -> bool:
    """Whether a body is refused if it arrives in chunks of these sizes, repeated."""
    meter, at, turn = JsonMeter(most), 0, 0
    try:
        while at < len(body):
            size = sizes[turn % len(sizes)]
            meter.feed(body[at : at + size])
            at, turn = at + size, turn + 1
    except BodyTooLargeError:
        return True
    return False


texts = st.text('ab"\\[{,:]} \nЖ\U0001f600', max_size=12)
values = st.recursive(
    texts | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None, max_examples=150)
@given(
    values,
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"]),
    st.booleans(),
)
def test_the_limit_is_exact(value: Any, sizes: list[int], encoding: str, ascii_only: bool) -> None:
    text = json.dumps([value, value], ensure_ascii=ascii_only)
    count, body = structure(text), text.encode(encoding)
    assert not refused(body, sizes, most=count)
    # A body with fewer bytes than the limit is not examined, because it cannot exceed it.
    assert refused(body, sizes, most=count - 1)


@pytest.mark.parametrize("cut", range(1, 9))
def test_an_escape_can_be_split_anywhere(cut: int) -> None:
    body = rb'["\\\\\"[[[[\\",1]' + b" " * 100
    assert not refused(body, [cut], most=2)
    assert refused(body, [cut], most=1)


def test_the_limit_allows_a_full_batch_of_long_conversations() -> None:
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant")] * 10
    fields = {"alpha": 0.1, "guarantee": "pac", "delta": 0.1, "calibration": "c", "id": 1}
    item = comparison(question=turns, response_a=["x"] * 10, response_b=["x"] * 10, **fields)
    body = json.dumps({"comparisons": [item] * 1000}).encode()
    assert not refused(body, [2**16], most=most_parts(1000))
    # A service with batches of one comparison accepts a long one.
    assert not refused(body[: len(body) // 4], [2**16], most=most_parts(1))


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/judge", "/judge/batch", "/calibrate"])
async def test_a_body_of_empty_lists_is_refused_after_its_first_chunks(path: str) -> None:
    parts = 0

    async def body() -> Any:
        nonlocal parts
        yield b'{"comparisons":['
        for _ in range(100):
            parts += 1
            yield b"[]," * 20_000

    async with client_of() as client:
        answer: httpx.Response = await client.post(path, content=body(), headers=JSON)
        detail = problem(answer, "body_too_large")["detail"]
        assert "send smaller batches" in detail
        # Each chunk has 40,000 of the 200,000 allowed characters, and the beginning has three.
        assert parts == 5


@pytest.mark.anyio
async def test_structural_characters_in_strings_do_not_count() -> None:
    async with client_of() as client:
        body = comparison(question='[{,:"\\' * 200_000, alpha=None)
        answer = await client.post("/judge", json=body)
        assert answer.status_code == 200
