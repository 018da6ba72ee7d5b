"""Makes running services and clients for tests, with any engine and store."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from app.api.application import create_application
from app.api.keys import Keys
from app.core.comparison import Comparison, Criterion, Guarantee, Label, LabeledComparison
from app.judges.engines.scripted import ScriptedEngine
from app.judges.label_logits import LabelLogitScorer
from app.judges.prompts import PromptTemplate
from app.judges.scorer import Scorer
from app.judging.judge import Asked
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Engine, LabelLogits, Prompt, PromptError, SetStore, Store
from app.sets.cache import Calibrations
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.wiring.services import assembled, open_services
from app.wiring.startup import LoggingObserver, StartupObserver
from tests.completed_questions import complete_questions
from tests.seeded_drift import seed_drift

seed_drift()
complete_questions()


async def label_scorer(
    engine: Engine | None = None, telemetry: Telemetry | None = None
) -> LabelLogitScorer:
    """A started judge with the paper's prompts."""
    return await LabelLogitScorer(
        engine=engine or ScriptedEngine(),
        template=PromptTemplate(),
        telemetry=telemetry or Telemetry.on_own_registry(),
    ).start()


@asynccontextmanager
async def services_of(
    engine: Engine | None = None,
    store: Store | None = None,
    **given: Any,
) -> AsyncIterator[Services]:
    """Services as `open_services` makes them; the test closes a store that it has given."""
    settings = Settings(**{"engine": "scripted", "store_url": "memory://", **given})
    engine, own = engine or ScriptedEngine(), store or MemoryStore()
    await own.open()
    telemetry = Telemetry.on_own_registry()
    scorer = await label_scorer(engine, telemetry)
    try:
        services = assembled(settings, scorer, own, telemetry=telemetry)
        await services.auditor.open()
        yield services
    finally:
        await engine.stop()
        if store is None:
            await own.close()


def calibrations_of(
    store: SetStore,
    *,
    clock: Callable[[], float] = time.monotonic,
    max_staleness_s: float = 60.0,
) -> Calibrations:
    telemetry = Telemetry.on_own_registry()
    return Calibrations(store, telemetry, max_staleness_s=max_staleness_s, clock=clock)


def application_of(
    engine: Engine | None = None,
    store: Store | None = None,
    *,
    keys: Keys | None = None,
    **given: Any,
) -> FastAPI:
    return create_application(
        Settings(**given), lambda: services_of(engine, store, **given), keys=keys
    )


@asynccontextmanager
async def client_of(
    engine: Engine | None = None,
    store: Store | None = None,
    *,
    keys: Keys | None = None,
    **given: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose lifespan runs."""
    app = application_of(engine, store, keys=keys, **given)
    async with app.router.lifespan_context(app), _client(app) as client:
        yield client


class Notes:
    """An observer that keeps what a start says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, text: str) -> None:
        self.said.append(text)

    note = warning = stage


@asynccontextmanager
async def client_of_settings(
    settings: Settings, observer: StartupObserver | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service that the settings start, with their engine and their store."""
    observer = observer or LoggingObserver()
    app = create_application(
        settings, lambda: open_services(settings, observer, on_lost=print), keys=None
    )
    async with app.router.lifespan_context(app), _client(app) as client:
        yield client


def _client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def application_of_scorer(scorer: Scorer, store: Store | None = None, **given: Any) -> FastAPI:
    """An application around a judge of any kind, in memory without an open store."""
    settings = Settings(**{"engine": "scripted", "store_url": "memory://", **given})

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        telemetry = Telemetry.on_own_registry()
        services = assembled(settings, scorer, store or MemoryStore(), telemetry=telemetry)
        await services.auditor.open()
        yield services

    return create_application(settings, opened, keys=None)


@asynccontextmanager
async def client_of_scorer(
    scorer: Scorer, store: Store | None = None, **given: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of such an application, whose lifespan runs."""
    app = application_of_scorer(scorer, store, **given)
    async with app.router.lifespan_context(app), _client(app) as client:
        yield client


def scripted_fingerprint() -> str:
    """The fingerprint of the judge that `engine="scripted"` starts."""
    return asyncio.run(label_scorer()).identity.fingerprint


class ShortEngine(ScriptedEngine):
    """An engine that loses the last answer of every call."""

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        return (await super().label_logits(prompts, times))[:-1]


def pair(a: float, b: float, *, question: str = "Which?") -> Comparison:
    """A comparison with the gap a - b in both orders under `by_quality`."""
    return Comparison.of(question, f"quality={a:.6f}", f"quality={b:.6f}")


def labelled(gap: float, label: Label, *, number: int) -> LabeledComparison:
    """A labeled comparison with this gap; each number gives a different question."""
    return LabeledComparison(comparison=pair(gap, 0.0, question=f"Question {number}?"), label=label)


def request(
    comparison: Comparison,
    *,
    alpha: float | None = 0.1,
    guarantee: Guarantee = "marginal",
    delta: float | None = None,
    calibration: str = "default",
) -> Asked:
    return comparison, Criterion(
        alpha=alpha, guarantee=guarantee, delta=delta, calibration=calibration
    )
