"""Votes of the demo judge behind vLLM's own server."""

import itertools

import httpx
import numpy as np
import pytest

from app.demo.pairs import demo_sets
from tests.integration.engines.vllm_server import FOLDER, body, remote, service

pytestmark = [
    pytest.mark.vllm,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

SAMPLES = 8
PAIRS = list(itertools.islice(demo_sets().fresh, 60))


VOTES = {"scoring": "votes", "samples": SAMPLES}


async def check(client: httpx.AsyncClient, labels: list[float]) -> None:
    """Checks votes against label logits, and every path of the service."""
    batch = {"comparisons": [body(pair) for pair in PAIRS], "alpha": None}
    results = (await client.post("/judge/batch", json=batch)).json()["results"]
    voted = [(row, label) for row, label in zip(results, labels, strict=True) if "p_bar" in row]
    # The demo judge was trained on the first token only, so some answers run on and do not parse.
    failed = [row["error"] for row in results if "error" in row]
    assert {error["code"] for error in failed} <= {"judgment_failed"}
    assert len(voted) >= 0.2 * len(PAIRS)
    shares, probabilities = np.array([(row["p_bar"], label) for row, label in voted]).T
    assert np.corrcoef(shares, probabilities)[0, 1] > 0.9
    assert abs((shares - probabilities).mean()) < 0.05
    place = next(i for i, row in enumerate(results) if "p_bar" in row)
    again = (await client.post("/judge", json={**body(PAIRS[place]), "alpha": None})).json()
    assert again["p_bar"] == results[place]["p_bar"]
    examples = [{**body(pair), "label": pair.label} for pair in PAIRS]
    added = (await client.post("/calibrate", json={"examples": examples})).json()
    assert added["added"] == len(voted)
    pair = PAIRS[place]
    responses = [pair.response_a, pair.response_b]
    group = {"question": pair.question, "responses": responses, "alpha": 0.4}
    assert len((await client.post("/rewards/group", json=group)).json()["rewards"]) == 2
    scoring = (await client.get("/info")).json()["scoring"]
    assert (scoring["samples"], scoring["left_out"]) == (SAMPLES, [])


async def label_probabilities(url: str) -> list[float]:
    """p_bar by label logits."""
    async with service(**remote(url, FOLDER)) as client:
        batch = {"comparisons": [body(pair) for pair in PAIRS], "alpha": None}
        results = (await client.post("/judge/batch", json=batch)).json()["results"]
    return [row["p_bar"] for row in results]


async def test_votes_over_a_server_agree_with_label_logits(server_url: str) -> None:
    labels = await label_probabilities(server_url)
    # First tokens, then messages, as for a server without log-probabilities.
    for scoring in ("auto", "top"):
        async with service(**VOTES, **remote(server_url, FOLDER), openai_scoring=scoring) as client:
            await check(client, labels)
