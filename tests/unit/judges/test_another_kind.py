"""A judge without labels, prompts and an engine goes through the whole service as a scorer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from app.core.comparison import Comparison
from app.core.errors import PromptTooLongError
from app.core.fingerprint import JudgeIdentity
from app.core.score import Score
from app.judges.scorer import ScoreError
from tests.serving import client_of_scorer

LONGEST = 1000


class LengthScorer:
    """Prefers the longer response, as a reward model would prefer the one with more reward."""

    identity = JudgeIdentity(
        name="length",
        inputs={"kind": "length", "unit": "characters"},
        described={"model": "length"},
        max_prompt_tokens=LONGEST,
    )

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        return [self._score(comparison) for comparison in comparisons]

    def _score(self, comparison: Comparison) -> Score | ScoreError:
        (a,), (b,) = comparison.response_a, comparison.response_b
        if len(a + b) > LONGEST:
            return PromptTooLongError("too long")
        gap = float(len(a) - len(b))
        return Score(gap_fwd=gap, gap_rev=None, label_mass=None)

    def weakness(self, score: Score) -> str | None:
        return None

    async def lost(self) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self) -> None:
        pass


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of_scorer(LengthScorer(), audit_rate=1.0) as service:
        yield service


def pair(longer_by: int, number: int) -> dict[str, str]:
    return {
        "question": f"Question {number}?",
        "response_a": "x" * (longer_by + 1),
        "response_b": "y",
    }


async def test_a_judge_of_another_kind_calibrates_judges_and_is_audited() -> None:
    async with client() as service:
        info = (await service.get("/info")).json()
        assert (info["judge"], info["model"]) == ("length", "length")
        assert info["fingerprint"] == LengthScorer.identity.fingerprint
        absent = ("dtype", "label_tokens", "prefill", "template")
        assert [info[field] for field in absent] == [None] * 4
        examples = [{**pair(2 + i % 9, i), "label": "A"} for i in range(60)]
        calibrated = await service.post("/calibrate", json={"examples": examples})
        assert calibrated.json()["added"] == 60
        assert calibrated.json()["fingerprint"] == info["fingerprint"]
        judged = await service.post("/judge", json=pair(9, 100))
        shown = ("verdict", "label_mass", "orders")
        assert [judged.json()[field] for field in shown] == ["A", None, 1]
        assert judged.json()["audit"]["rate"] == 1.0
        long = await service.post("/judge", json=pair(LONGEST, 101))
        assert (long.status_code, long.json()["code"]) == (413, "prompt_too_long")
        assert (await service.get("/readyz")).status_code == 200


async def test_what_a_judge_does_not_have_is_null_and_tested_nowhere() -> None:
    async with client() as service:
        labeled = [{**pair(2 + i % 9, i), "label": "A"} for i in range(60)]
        await service.post("/calibrate", json={"examples": labeled})
        batch = {"comparisons": [pair(1 + i % 9, i) for i in range(100, 160)]}
        results = (await service.post("/judge/batch", json=batch)).json()["results"]
        assert {(each["label_mass"], each["orders"]) for each in results} == {(None, 1)}
        assert all(each["p_fwd"] == each["p_rev"] for each in results)
        found = (await service.get("/calibrations/default")).json()
        assert (found["position_flips"], found["mean_label_mass"]) == (None, None)
        drift = (await service.get("/calibrations/default/monitor")).json()["drift"]
        assert (drift["position_gap"], drift["label_mass"]) == (None, None)
        assert drift["uncertainty"]["evidence"] > 0.0
        page = (await service.get("/calibrations/default/examples")).json()["examples"]
        assert {(row["gap_rev"], row["label_mass"]) for row in page} == {(None, None)}
        metrics = (await service.get("/metrics")).text
        assert "scope_uncertainty_nats_count 60.0" in metrics
        for absent in ("scope_position_gap", "scope_label_mass"):
            assert f"{absent}_count 0.0" in metrics
