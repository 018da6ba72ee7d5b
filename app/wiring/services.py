"""Opens the services of one process, and closes them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from app import __version__
from app.core.comparison import Comparison, CriterionDefaults
from app.core.errors import (
    EngineUnavailableError,
    OverloadedError,
)
from app.core.fingerprint import JudgeIdentity
from app.ports import Engine, Mortal, OnStage, Store, no_stage
from app.service.admission import Admission
from app.service.auditing.absorption import Absorber
from app.service.auditing.auditor import Auditor
from app.service.auditing.drift import Drift
from app.service.auditing.monitor import Monitor
from app.service.calibration.cache import Calibrations
from app.service.calibration.calibrator import Calibrator
from app.service.calibration.following import follow
from app.service.judging.judge import Judge
from app.service.judging.prompts import PromptTemplate, load_template
from app.service.judging.quoting import FENCE_VERSION
from app.service.readiness import Readiness
from app.service.rewards.rewarder import Rewarder
from app.service.services import Limits, Services
from app.settings import Settings
from app.telemetry import Telemetry
from app.tracing import TracedEngine, Tracing, traced_store
from app.wiring.engines import judge_name, make_engine
from app.wiring.startup import StartupObserver, check_answers, prepare_default
from app.wiring.stores import chosen_store, make_store

logger = logging.getLogger("app")

# The comparisons of a reward may be so many times as long as the largest body: 32 groups of 8
# responses with 4,000 characters to questions with 10,000 need two.
_REWARD_GROWTH = 4


@dataclass(frozen=True, slots=True)
class StartedJudge:
    """A loaded judge with its prompt template.

    Args:
        engine: The started engine.
        template: Template of the judge's prompts.
        name: Name of the judge in answers.
        identity: Everything that the judge's scores depend on; its hash is the fingerprint.
        max_prompt_tokens: Longest prompt that the judge accepts.
    """

    engine: Engine
    template: PromptTemplate
    name: str
    identity: JudgeIdentity
    max_prompt_tokens: int

    @classmethod
    async def start(
        cls, engine: Engine, template: PromptTemplate, on_stage: OnStage = no_stage
    ) -> "StartedJudge":
        """Loads the model.

        Args:
            engine: The engine, not yet started.
            template: Template of the judge's prompts.
            on_stage: Called with the name of each stage, when it begins.

        Raises:
            StartupError: The model cannot be loaded, or cannot work as a judge.
        """
        started = await engine.start(template.render(Comparison.of("x", "x", "x")), on_stage)
        identity = JudgeIdentity(
            model=started.model,
            weights=started.weights,
            chat_frame=started.chat_frame,
            label_tokens=started.label_tokens,
            dtype=started.dtype,
            system=template.system,
            user=template.user,
            prefill=template.prefill,
            fence=FENCE_VERSION,
        )
        return cls(engine, template, started.judge, identity, started.max_prompt_tokens)


@asynccontextmanager
async def open_services(
    settings: Settings,
    observer: StartupObserver,
    *,
    on_engine_lost: Callable[[str], None],
    new_engine: Callable[[Settings], Engine] = make_engine,
) -> AsyncIterator[Services]:
    """Opens the store, starts the engine and prepares the default calibration set.

    The services are closed when the block ends.

    Args:
        settings: Settings of the service.
        observer: Receives the progress of the start.
        on_engine_lost: Called with the reason when the engine can never answer again; the process
            should then end.
        new_engine: Makes the engine.

    Raises:
        StartupError: The settings are wrong, or the model cannot be loaded.
        StoreUnavailableError: The store does not answer.
    """
    template = load_template(settings.prompt_file, prefill=settings.prefill)
    chosen = chosen_store(settings.store_url, judge_name(settings))
    if chosen.notice is not None:
        observer.note(chosen.notice)
    settings = settings.model_copy(update={"store_url": chosen.url})
    store = make_store(settings.store_url)
    async with AsyncExitStack() as stack:
        tracing = Tracing() if settings.traces else None
        if tracing is not None:
            stack.push_async_callback(tracing.stop)
        stack.push_async_callback(store.close)
        await store.open()
        judge = await stack.enter_async_context(
            open_judge(settings, template, observer, new_engine)
        )
        services = _assemble(settings, judge, store, tracing)
        stack.callback(services.judge.close)
        await services.auditor.open()
        await check_answers(services, observer)
        await prepare_default(services, settings, observer)
        await stack.enter_async_context(_watched(judge.engine, on_engine_lost))
        for name, work in {
            "following the calibration store": follow(services.calibrations, services.store),
            "following the audits": services.auditor.follow(),
            "the monitor of audits": services.monitor.follow(),
            "the test of drift": services.drift.follow(),
        }.items():
            await stack.enter_async_context(_background(work, name=name))
        yield services


@asynccontextmanager
async def _watched(engine: Engine, on_lost: Callable[[str], None]) -> AsyncIterator[None]:
    if not isinstance(engine, Mortal):
        yield
        return

    async def watch() -> None:
        on_lost(await engine.lost())

    async with _background(watch(), name="the watch over the engine"):
        yield


@asynccontextmanager
async def _background(work: Coroutine[None, None, None], *, name: str) -> AsyncIterator[None]:
    """Runs a background task while the block runs; a failure is logged and ends nothing else."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _log_failure(task: asyncio.Task[None]) -> None:
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        # The message is left out, because it may contain a text.
        logger.error("%s has failed: %s", task.get_name(), type(failure).__name__)


@asynccontextmanager
async def open_judge(
    settings: Settings,
    template: PromptTemplate,
    observer: StartupObserver,
    new_engine: Callable[[Settings], Engine] = make_engine,
) -> AsyncIterator[StartedJudge]:
    """Loads the judge, and stops its engine when the block ends.

    Args:
        settings: Settings of the judge.
        template: Template of the judge's prompts.
        observer: Receives the progress of the start.
        new_engine: Makes the engine.

    Raises:
        StartupError: The settings are wrong, or the model cannot be loaded.
    """
    engine = new_engine(settings)
    name = judge_name(settings)
    observer.stage(f"Loading judge {name}")
    try:
        yield await StartedJudge.start(
            engine, template, lambda stage: observer.stage(f"Loading judge {name}: {stage}")
        )
    finally:
        await engine.stop()


def _assemble(
    settings: Settings,
    started: StartedJudge,
    store: Store,
    tracing: Tracing | None = None,
) -> Services:
    telemetry = _telemetry_of(started)
    engine: Engine = started.engine
    if tracing is not None:
        engine, store = TracedEngine(engine, tracing), traced_store(store, tracing)
    admission = Admission(max_pending=settings.max_pending, telemetry=telemetry)
    calibrations = _calibrations_of(settings, store, telemetry)
    auditor = _auditor_of(settings, started, store, telemetry)
    monitor = Monitor(auditor, calibrations, telemetry, on_alarm=settings.on_alarm)
    judge = Judge(
        engine,
        started.template,
        calibrations,
        telemetry,
        name=started.name,
        fingerprint=started.identity.fingerprint,
        auditor=auditor,
        monitor=monitor,
    )
    calibrator = Calibrator(judge, store, calibrations)
    limits = _limits_of(settings, started, admission)
    return Services(
        judge=judge,
        rewarder=_rewarder_of(judge, admission, limits),
        calibrator=calibrator,
        calibrations=calibrations,
        drift=Drift(calibrations, store, telemetry),
        auditor=auditor,
        monitor=monitor,
        absorber=Absorber(auditor, calibrator, calibrations, fingerprint=judge.fingerprint),
        store=store,
        admission=admission,
        readiness=Readiness(judge, store, calibrations, timeout_s=settings.probe_timeout_s),
        telemetry=telemetry,
        tracing=tracing,
        identity=started.identity,
        limits=limits,
        defaults=_defaults_of(settings),
        end_markers=tuple(settings.reward_end_markers.split()),
    )


def _defaults_of(settings: Settings) -> CriterionDefaults:
    return CriterionDefaults(
        settings.default_alpha, settings.default_guarantee, settings.default_delta
    )


def _calibrations_of(settings: Settings, store: Store, telemetry: Telemetry) -> Calibrations:
    return Calibrations(
        store,
        telemetry,
        max_staleness_s=settings.max_staleness_s,
        min_label_mass=settings.min_label_mass,
    )


def _auditor_of(
    settings: Settings, started: StartedJudge, store: Store, telemetry: Telemetry
) -> Auditor:
    return Auditor(
        store,
        telemetry,
        fingerprint=started.identity.fingerprint,
        rate=settings.audit_rate,
        expires_s=settings.audit_expires_s,
    )


def _limits_of(settings: Settings, started: StartedJudge, admission: Admission) -> Limits:
    return Limits(
        # Admission would refuse a larger batch even when nothing else is in progress.
        max_batch=min(settings.max_batch, admission.largest_request),
        max_body_bytes=settings.max_body_bytes,
        max_prompt_tokens=started.max_prompt_tokens,
    )


def _rewarder_of(judge: Judge, admission: Admission, limits: Limits) -> Rewarder:
    most_characters = _REWARD_GROWTH * limits.max_body_bytes
    return Rewarder(judge, admission, most=limits.max_batch, most_characters=most_characters)


def _telemetry_of(started: StartedJudge) -> Telemetry:
    telemetry = Telemetry.on_own_registry()
    telemetry.expect_errors(
        engine=(EngineUnavailableError.code, OverloadedError.code),
        problems=(OverloadedError.code,),
    )
    fingerprint = started.identity.fingerprint
    telemetry.show_judge(started.name, fingerprint=fingerprint, version=__version__)
    return telemetry
