"""A cascade of two scripted services, whose judges read their own numbers in the pairs."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from app.api.application import create_application
from app.judges.cascade import CascadeScorer, EscalationShare, LargeJudge
from app.judges.engines.openai_servers import Endpoints
from app.judges.engines.scripted import Script, ScriptedEngine, logits_of_gap
from app.observability.telemetry import Telemetry
from app.ports import LabelLogits, Prompt, Store
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.wiring.services import assembled
from tests.serving import application_of, label_scorer

LARGE_URL = "http://localhost:9001"


def reader(mark: str) -> Script:
    """A script whose gap is that of the first response's number with this mark and the second's."""
    number = re.compile(rf"\b{mark}=(-?\d+\.\d+)")

    def script(prompt: Prompt) -> LabelLogits:
        marks = number.findall(prompt.user)
        # A probe has none.
        return logits_of_gap(float(marks[-2]) - float(marks[-1]) if len(marks) > 1 else 1.0)

    script.__qualname__ = mark
    return script


def engine(mark: str) -> ScriptedEngine:
    return ScriptedEngine(reader(mark), judge=mark)


@dataclass
class Switch(httpx.AsyncBaseTransport):
    """The network to the large service: it can be cut (`to` is None), and lead to another service.

    `asked` counts the pairs that were sent, and `requests` the requests with pairs. The next
    answers have `statuses` alone.
    """

    to: httpx.ASGITransport | None = None
    asked: int = 0
    requests: int = 0
    statuses: list[int] = field(default_factory=list)
    delay_s: float = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self.delay_s)
        if self.to is None:
            raise httpx.ConnectError("nothing listens")
        self.requests += request.url.path == "/scores"
        if self.statuses:
            return httpx.Response(self.statuses.pop(0))
        if request.url.path == "/scores":
            self.asked += request.content.count(b'"response_a"')
        return await self.to.handle_async_request(request)


@asynccontextmanager
async def large_service(mark: str = "large") -> AsyncIterator[httpx.ASGITransport]:
    app = application_of(engine(mark))
    async with app.router.lifespan_context(app):
        yield httpx.ASGITransport(app)


@asynccontextmanager
async def cascade_client(
    network: Switch,
    store: Store | None = None,
    *,
    most: float = 1.0,
    longest_s: float = 5.0,
    probe_every_s: float = 0.02,
    **given: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the small service, which asks the large one over the network."""
    settings = Settings(engine="scripted", store_url="memory://", escalate_url=LARGE_URL, **given)
    telemetry = Telemetry.on_own_registry()
    small = await label_scorer(engine("small"), telemetry)
    endpoints = Endpoints(urls=(LARGE_URL,), timeout_s=longest_s, probe_every_s=probe_every_s)
    large = LargeJudge(endpoints, network)
    await large.start()
    scorer = CascadeScorer(
        small=small,
        large=large,
        share=EscalationShare(most),
        telemetry=telemetry,
    )

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        services = assembled(settings, scorer, store or MemoryStore(), telemetry=telemetry)
        await services.auditor.open()
        yield services

    app = create_application(settings, opened, keys=None)
    try:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):
            yield client
    finally:
        await large.stop()


def pairs(
    n: int, *, seed: int, accuracy: tuple[float, float] = (0.8, 0.92)
) -> list[dict[str, Any]]:
    """Labeled pairs: the small judge is right on 80% and the large one on 92%.

    The surer a judge is, the more often it is right.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        label = "A" if rng.random() < 0.5 else "B"
        gaps = []
        for share in (0.8, 0.92):
            right = rng.random() < share
            size = abs(rng.normal(1.8 if right else 0.4, 0.8)) + 0.01
            gaps.append(size if right == (label == "A") else -size)
        rows.append(
            {
                "question": f"Question {seed}-{number}?",
                "response_a": f"small={gaps[0]:.6f} large={gaps[1]:.6f}",
                "response_b": "small=0.0 large=0.0",
                "label": label,
            }
        )
    return rows


def unlabeled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "label"} for row in rows]


async def planned(client: httpx.AsyncClient, name: str = "mine", **given: Any) -> httpx.Response:
    """Scores 1,000 pairs with both judges, and makes the plan of a set of them."""
    rows = unlabeled(pairs(1000, seed=1))
    answer = (await client.post("/scores", json={"comparisons": rows})).json()
    info = (await client.get("/info")).json()
    both = [
        {"small": each["small"], "large": {key: each[key] for key in each["small"]}}
        for each in answer["scores"]
    ]
    small, large = (rung["fingerprint"] for rung in info["rungs"])
    body = {"small": small, "large": large, "alpha": 0.1, "pairs": both, **given}
    return await client.post(f"/calibrations/{name}/cascade", json=body)


async def calibrated(client: httpx.AsyncClient, name: str = "mine", n: int = 800) -> dict[str, Any]:
    """Plans a cascade and calibrates it."""
    response = await planned(client, name)
    assert response.status_code == 200, response.text
    response = await client.post(
        "/calibrate", json={"calibration": name, "examples": pairs(n, seed=2)}
    )
    assert response.status_code == 200, response.text
    report: dict[str, Any] = response.json()
    return report
