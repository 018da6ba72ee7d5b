"""The JSON of answers, field by field, as it was recorded before records declared them."""

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Response

from app.api import errors
from app.api.answers.making import to_json
from app.api.responses import as_json
from app.core.errors import InternalError
from app.judges.engines.scripted import ScriptedEngine
from scope_judge.records import AuditReference
from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison
from tests.unit.api.rewards.reward_routes import PROMPT, script

RECORDED = Path(__file__).with_name("answers.json")
GROUP = {"question": "Which?", "responses": ["quality=3", "quality=0", "", "ENDLESS"]}
BATCH = [comparison(id="x"), comparison(response_a="ENDLESS", id=3), {"question": "Which?"}]
SAMPLES = {"query": [f"{PROMPT}quality=1"], "prompts": [PROMPT], "labels": ["quality=0"]}
REQUESTS: dict[str, tuple[str, Any]] = {
    "judge": ("/judge", comparison(id="mine")),
    "judge without alpha": ("/judge", comparison(alpha=None)),
    "judge, infeasible": ("/judge", comparison(alpha=0.001, guarantee="pac", delta=0.05)),
    "judge, problem": ("/judge", comparison(alpha=2, delta="x")),
    "judge, other problem": ("/judge", comparison(calibration="absent")),
    "batch": ("/judge/batch", {"comparisons": BATCH}),
    "group": ("/rewards/group", {**GROUP, "comparisons": True}),
    "groups": ("/rewards/groups", {"groups": [GROUP, {"question": " ", "responses": ["x"]}]}),
    "reference": ("/rewards/reference", {**GROUP, "reference": "quality=1", "comparisons": True}),
    "OpenRLHF": ("/rewards/openrlhf?alpha=null", SAMPLES),
}


async def answers() -> dict[str, Any]:
    """The answer to each request, and what the service says of itself."""
    async with client_of(ScriptedEngine(script)) as client:
        await calibrated(client)
        found = {}
        for name, (path, body) in REQUESTS.items():
            found[name] = (await client.post(path, json=body)).json()
        for path in ("/info", "/healthz", "/readyz"):
            found[path] = (await client.get(path)).json()
        # These change from release to release.
        found["/info"].pop("commit")
        found["/info"]["limits"].pop("max_batch")
        return found


async def test_answers_have_the_recorded_fields_and_values() -> None:
    assert await answers() == json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_an_answer_with_a_number_that_is_not_finite_is_a_defect(number: float) -> None:
    record = AuditReference(id="drawn", rate=number)
    with pytest.raises(InternalError, match="not finite"):
        to_json(record)
    app = FastAPI()
    errors.install(app)

    @app.get("/")
    async def answer() -> Response:
        return as_json(lambda: record)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
