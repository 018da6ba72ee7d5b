"""Answers with SCOPE_SCORE_CACHE: the same numbers for less work of the judge."""

from typing import Any

import httpx

from tests.serving import client_of
from tests.unit.api.problems import comparison

NOTHING = {"engine_prompts": 0, "prompt_tokens": 0, "large": None}


async def judged(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/judge", json=comparison(alpha=None, **fields))
    assert answer.status_code == 200, answer.text
    row: dict[str, Any] = answer.json()
    return row


async def test_without_the_setting_nothing_is_kept() -> None:
    async with client_of() as client:
        answers = [await judged(client) for _ in range(2)]
    assert [row["cached"] for row in answers] == [False, False]
    assert [row["usage"]["engine_prompts"] for row in answers] == [2, 2]


async def test_a_batch_states_its_usage_and_its_repetitions() -> None:
    async with client_of(score_cache=60) as client:
        pairs = [comparison(question=f"{i}", alpha=None) for i in (1, 2, 1, 1)]
        answer = (await client.post("/judge/batch", json={"comparisons": pairs})).json()
    assert answer["usage"]["engine_prompts"] == 4
    assert [row["cached"] for row in answer["results"]] == [False, False, True, True]


async def test_a_calibration_uses_kept_scores_and_states_its_usage() -> None:
    async with client_of(score_cache=60) as client:
        pair = comparison()
        await judged(client)
        body = {"calibration": "default", "examples": [{**pair, "label": "A"}]}
        answer = (await client.post("/calibrate", json=body)).json()
    assert answer["usage"] == NOTHING
    assert answer["added"] == 1
