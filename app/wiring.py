"""Settings -> running services: the one place that names adapters."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from app import __version__
from app.core.comparison import Comparison
from app.core.errors import (
    EngineUnavailableError,
    OverloadedError,
    StartupError,
    StoreCorruptError,
)
from app.core.fingerprint import JudgeIdentity
from app.ports import CalibrationStore, Engine, Mortal
from app.service.admission import Admission
from app.service.bundled import is_outdated, labelled_comparisons
from app.service.calibrating import Calibrator
from app.service.calibrations import DEFAULT_CALIBRATION, Calibrations
from app.service.fencing import FENCE_VERSION
from app.service.judging import Judge, Score
from app.service.prompts import PromptTemplate, load_template
from app.service.readiness import Readiness
from app.service.services import Limits, Services
from app.settings import Settings
from app.telemetry import Telemetry
from app.tracing import Tracing

DEMO = "demo"
DEMO_FOLDER = Path(__file__).parent / "demo"
logger = logging.getLogger("app")

# Below this a judge is about to say something else than a label.
_LEAST_LABEL_MASS = 0.5


class StartupObserver(Protocol):
    """Is told what a start is doing, for people who wait for it."""

    def stage(self, text: str) -> None:
        """A new stage begins."""

    def warning(self, text: str) -> None:
        """Something that does not stop the service and should not be missed."""

    def calibrated(self, done: int, total: int) -> None:
        """So many of the shipped pairs have been judged."""


@dataclass(frozen=True, slots=True)
class StartedJudge:
    """A loaded judge, with the template it is asked by.

    Args:
        engine: Started.
        template: Of its prompts.
        name: In answers.
        identity: What its scores depend on.
        max_prompt_tokens: Longest prompt it reads.
    """

    engine: Engine
    template: PromptTemplate
    name: str
    identity: JudgeIdentity
    max_prompt_tokens: int

    @classmethod
    async def start(cls, engine: Engine, template: PromptTemplate) -> "StartedJudge":
        """Loads the model.

        Raises:
            StartupError: It cannot be a judge as configured.
        """
        started = await engine.start(template.render(Comparison.of("x", "x", "x")))
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
    settings: Settings, observer: StartupObserver, *, on_engine_lost: Callable[[str], None]
) -> AsyncIterator[Services]:
    """Starts store and engine, calibrates the demo judge if nobody has, and closes all at the end.

    Args:
        settings: Of everything.
        observer: Is told what the start is doing.
        on_engine_lost: Is told why the engine can never answer again: the process is to end then.

    Raises:
        StartupError: Something is set that cannot work.
        StoreUnavailableError: The store does not answer.
    """
    template = load_template(settings.prompt_file, prefill=settings.prefill)
    store = make_store(settings.store_url)
    async with AsyncExitStack() as stack:
        tracing = Tracing() if settings.traces else None
        if tracing is not None:
            stack.push_async_callback(tracing.stop)
            tracing.watch_store(store)
        stack.push_async_callback(store.close)
        await store.open()
        judge = await stack.enter_async_context(open_judge(settings, template, observer))
        if tracing is not None:
            tracing.watch_engine(judge.engine)
        services = _assemble(settings, judge, store, tracing)
        stack.callback(services.judge.close)
        await _check_answers(services, observer)
        await _prepare_default(services, settings, observer)
        await stack.enter_async_context(_watched(judge.engine, on_engine_lost))
        following = services.calibrations.follow()
        await stack.enter_async_context(_beside(following, name="following the calibration store"))
        yield services


@asynccontextmanager
async def _watched(engine: Engine, on_lost: Callable[[str], None]) -> AsyncIterator[None]:
    if not isinstance(engine, Mortal):
        yield
        return

    async def watch() -> None:
        on_lost(await engine.lost())

    async with _beside(watch(), name="the watch over the engine"):
        yield


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None], *, name: str) -> AsyncIterator[None]:
    """Runs something as long as the block runs; that it failed is logged, and nothing else ends."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _tell_failure(task: asyncio.Task[None]) -> None:
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        # Not its message, which may repeat what it was about.
        logger.error("%s has ended: %s", task.get_name(), type(failure).__name__)


@asynccontextmanager
async def open_judge(
    settings: Settings, template: PromptTemplate, observer: StartupObserver
) -> AsyncIterator[StartedJudge]:
    """Loads the judge, and frees it at the end.

    Raises:
        StartupError: Something is set that cannot work.
    """
    engine = make_engine(settings)
    observer.stage(f"Loading judge {judge_name(settings)}")
    try:
        yield await StartedJudge.start(engine, template)
    finally:
        await engine.stop()


def judge_name(settings: Settings) -> str:
    """How the judge is called in answers: a folder by its name, a model of the hub by its id."""
    if settings.engine == "scripted":
        return settings.engine
    path = Path(settings.model)
    return path.name if settings.model != DEMO and path.is_dir() else settings.model


def make_engine(settings: Settings) -> Engine:
    """The engine that SCOPE_ENGINE names, not yet started.

    Raises:
        StartupError: Something is set that cannot work.
    """
    if settings.engine == "scripted":
        from app.engines.scripted import ScriptedEngine

        return ScriptedEngine(judge=judge_name(settings))
    if settings.engine == "openai":
        return _openai_engine(settings)
    if settings.engine == "transformers":
        from app.engines.transformers_reference import TransformersEngine, TransformersOptions

        return TransformersEngine(
            TransformersOptions(
                model=_folder_or_id(settings.model),
                judge=judge_name(settings),
                revision=settings.revision,
                dtype=settings.dtype,
                max_model_len=settings.max_model_len,
            )
        )
    from app.engines.vllm_local import VllmEngine, VllmOptions

    options = VllmOptions(
        model=_folder_or_id(settings.model),
        judge=judge_name(settings),
        revision=settings.revision,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        tensor_parallel_size=settings.tensor_parallel,
        gpu_memory_utilization=settings.gpu_memory,
        cpu_kv_cache_bytes=settings.cpu_kv_cache_mb * 2**20,
        metrics=settings.engine_metrics,
    )
    return VllmEngine(options)


def _openai_engine(settings: Settings) -> Engine:
    from app.engines.openai_remote import OpenAiEngine, OpenAiOptions
    from app.engines.openai_servers import parse_urls

    if settings.revision is not None:
        raise StartupError(
            "SCOPE_REVISION cannot be chosen with SCOPE_ENGINE=openai: the servers have chosen it"
        )
    key = settings.openai_api_key
    return OpenAiEngine(
        OpenAiOptions(
            urls=parse_urls(settings.openai_urls),
            model=settings.model,
            judge=judge_name(settings),
            tokenizer=_folder_or_id(settings.tokenizer or settings.model),
            api_key=key.get_secret_value().strip() if key else "",
            scoring=settings.openai_scoring,
            timeout_s=settings.openai_timeout_s,
            max_model_len=settings.max_model_len,
        )
    )


def _folder_or_id(model: str) -> str:
    return str(DEMO_FOLDER / "model") if model == DEMO else model


def make_store(url: str) -> CalibrationStore:
    """The store that a URL's scheme names, not yet open.

    Raises:
        StartupError: No store has this scheme, or it is no URL.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        # Without the reason: it repeats a part of the URL, which may hold a password.
        raise StartupError("SCOPE_STORE_URL is no URL that can be read") from None
    if scheme in ("redis", "rediss", "unix"):
        from app.stores.redis import RedisStore

        return RedisStore(url)
    if scheme == "sqlite":
        from app.stores.sqlite import SqliteStore

        path = url.removeprefix("sqlite:///")
        if path in ("", url):
            raise StartupError(
                "SCOPE_STORE_URL: write sqlite:///file.db or sqlite:////path/file.db"
            )
        return SqliteStore(Path(path))
    if scheme == "memory":
        from app.stores.memory import MemoryStore

        return MemoryStore()
    raise StartupError(
        f"SCOPE_STORE_URL has the scheme {scheme!r}: give sqlite:///path, redis://host:port/db or "
        "memory://"
    )


def _assemble(
    settings: Settings,
    started: StartedJudge,
    store: CalibrationStore,
    tracing: Tracing | None = None,
) -> Services:
    telemetry = _telemetry_of(started)
    admission = Admission(max_pending=settings.max_pending, telemetry=telemetry)
    calibrations = Calibrations(
        store,
        telemetry,
        max_staleness_s=settings.max_staleness_s,
        min_label_mass=settings.min_label_mass,
    )
    judge = Judge(
        started.engine,
        started.template,
        calibrations,
        telemetry,
        name=started.name,
        fingerprint=started.identity.fingerprint,
    )
    limits = Limits(
        default_alpha=settings.default_alpha,
        default_guarantee=settings.default_guarantee,
        default_delta=settings.default_delta,
        # A larger one could never be admitted.
        max_batch=min(settings.max_batch, admission.largest_request),
        max_body_bytes=settings.max_body_bytes,
        max_prompt_tokens=started.max_prompt_tokens,
    )
    return Services(
        judge=judge,
        calibrator=Calibrator(judge, store, calibrations),
        calibrations=calibrations,
        store=store,
        admission=admission,
        readiness=Readiness(judge, store, calibrations, timeout_s=settings.probe_timeout_s),
        telemetry=telemetry,
        tracing=tracing,
        identity=started.identity,
        limits=limits,
    )


def _telemetry_of(started: StartedJudge) -> Telemetry:
    telemetry = Telemetry.on_own_registry()
    telemetry.expect_errors(
        engine=(EngineUnavailableError.code, OverloadedError.code),
        problems=(OverloadedError.code,),
    )
    fingerprint = started.identity.fingerprint
    telemetry.show_judge(started.name, fingerprint=fingerprint, version=__version__)
    return telemetry


async def _check_answers(services: Services, observer: StartupObserver) -> None:
    """Says so if the judge would answer with something else than a label."""
    score = await services.readiness.probe()
    if isinstance(score, Score) and score.label_mass < _LEAST_LABEL_MASS:
        prefill = services.identity.prefill
        advice = f"without the prefill {prefill!r}" if prefill else 'with SCOPE_PREFILL="[["'
        observer.warning(
            f"A and B have only {score.label_mass:.1e} of the probability where this "
            f"judge answers, so its preferences mean little; try it {advice}"
        )


async def _prepare_default(
    services: Services, settings: Settings, observer: StartupObserver
) -> None:
    """Reads the default calibration; makes the demo judge's if there is none, or an outdated one.

    The demo judge's is made as /calibrate would. It is outdated where another release of this
    service made it of the shipped pairs alone: its thresholds are refused for this judge.
    """
    try:
        known = await services.calibrations.current(DEFAULT_CALIBRATION)
    except StoreCorruptError as exc:
        # Only a running service can delete it.
        observer.warning(f"Going on without a default calibration: {exc.detail}")
        return
    if settings.engine != "vllm" or settings.model != DEMO:
        return
    examples = labelled_comparisons(DEMO_FOLDER / "calibrate.jsonl")
    if known is not None:
        # Other replicas may judge by a set that is in Redis.
        own_store = settings.store_url.startswith("sqlite:")
        if not own_store or not await is_outdated(known, examples, services):
            return
        observer.stage("Deleting the default calibration, made by an earlier release of this judge")
        await services.calibrator.delete(DEFAULT_CALIBRATION)
    observer.stage(f"Calibrating with {len(examples)} labelled pairs")
    await services.calibrator.add(
        DEFAULT_CALIBRATION,
        examples,
        on_progress=lambda done: observer.calibrated(done, len(examples)),
    )
