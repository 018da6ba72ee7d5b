"""A judge without labels, prompts and an engine goes through the whole service as a scorer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from app.core.comparison import Comparison
from app.core.errors import PromptTooLongError
from app.core.fingerprint import JudgeIdentity
from app.core.preference import Score
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
