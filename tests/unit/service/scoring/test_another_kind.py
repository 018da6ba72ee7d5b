"""A judge without labels, prompts and an engine goes through the whole service as a scorer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from app.core.comparison import Comparison
from app.core.errors import PromptTooLongError
from app.core.fingerprint import JudgeIdentity
from app.core.score import Score
from app.main import build
from app.observability.telemetry import Telemetry
from app.service.scoring.scorer import ScoreError
from app.service.services import Services
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.wiring.services import assembled

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
        return Score(gap_fwd=gap, gap_rev=gap, label_mass=1.0)

    def weakness(self, score: Score) -> str | None:
        return None

    async def lost(self) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self) -> None:
        pass


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(store_url="memory://", audit_rate=1.0)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        telemetry = Telemetry.on_own_registry()
        services = assembled(settings, LengthScorer(), MemoryStore(), telemetry=telemetry)
        await services.auditor.open()
        yield services

    app = build(settings, opened, keys=None)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as found,
    ):
        yield found


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
        assert (judged.json()["verdict"], judged.json()["label_mass"]) == ("A", 1.0)
        assert judged.json()["audit"]["rate"] == 1.0
        long = await service.post("/judge", json=pair(LONGEST, 101))
        assert (long.status_code, long.json()["code"]) == (413, "prompt_too_long")
        assert (await service.get("/readyz")).status_code == 200
