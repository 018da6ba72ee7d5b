"""Opens the services of one process, and closes them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from app import __version__
from app.audits.auditor import Auditor
from app.audits.changes import Changes
from app.audits.drift import Drift
from app.audits.keeping import keep_few
from app.audits.monitor import Monitor
from app.core.comparison import CriterionDefaults
from app.core.errors import EngineUnavailableError, OverloadedError
from app.core.fingerprint import JudgeIdentity
from app.judges.cached import CachingScorer
from app.judges.cascade import CascadeScorer
from app.judges.label_logits import LabelLogitScorer
from app.judges.scorer import Scorer
from app.judging.admission import Admission, RateLimits
from app.judging.judge import Judge
from app.judging.readiness import Readiness
from app.judging.rewards import Rewarder
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.ports import Engine, FailStop, Store
from app.release import COMMIT
from app.sets.cache import Calibrations
from app.sets.calibrator import Calibrator
from app.settings import Settings
from app.wiring.engines import restarts_judge
from app.wiring.scorers import open_cascade, open_scorer
from app.wiring.startup import StartupObserver, check_answers, check_in_background, prepare_default
from app.wiring.stores import make_store, own_store
from scope_judge.records import Limits

logger = logging.getLogger("app")

# Most scores that the store keeps, at up to 200 bytes.
_MOST_SCORES = 1_000_000
# The comparisons of a reward may be so many times as long as the largest body: 40 responses with
# 9,000 characters to one question need seven.
_REWARD_GROWTH = 16


@asynccontextmanager
async def open_services(
    settings: Settings,
    observer: StartupObserver,
    *,
    on_lost: Callable[[str], None],
    new_engine: Callable[[Settings], Engine] | None = None,
) -> AsyncIterator[Services]:
    """Opens the store, starts the engine and prepares the default calibration set.

    The services are closed when the block ends.

    Args:
        on_lost: Called with the reason when the engine or the store can never answer again; the
            process should then end.
        new_engine: Makes the engine of a chat model; None for `make_engine`.

    Raises:
        StartupError: The settings are wrong, or the model cannot be loaded.
        StoreUnavailableError: The store does not answer.
    """
    if not settings.store_url:
        file = own_store(settings.judge_name)
        observer.note(f"Calibrations are in {file}")
        settings = settings.model_copy(update={"store_url": f"sqlite:///{file}"})
    telemetry = Telemetry.on_own_registry()
    store = make_store(settings.store_url)
    # This checks the settings before the store is opened, so that wrong ones leave no file behind.
    opening = open_scorer(
        settings, observer, telemetry=telemetry, new_engine=new_engine, tie_key=store.secret
    )
    if settings.escalate_url:
        opening = open_cascade(settings, opening, observer, telemetry)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.open()
        scorer = await stack.enter_async_context(opening)
        services = assembled(settings, scorer, store, telemetry=telemetry)
        await services.auditor.open()
        await check_answers(services, observer)
        await prepare_default(services, settings, observer)
        background = {
            "following the calibration store": services.calibrations.follow(),
            "following the audits": services.auditor.follow(),
            "the deletion of audits": keep_few(
                services.auditor, store, keep_days=settings.audit_keep_days
            ),
            "the monitor of audits": services.monitor.follow(),
            "the test of drift": services.drift.follow(),
            "the watch over the engine": _report(scorer.lost, on_lost),
        }
        if settings.max_hang_s and restarts_judge(settings):
            hung = partial(services.readiness.hung, settings.max_hang_s)
            background["the watch over a hang"] = _report(hung, on_lost)
        if settings.engine in ("vllm", "openai") and isinstance(scorer, LabelLogitScorer):
            background["the check of the judge"] = check_in_background(services, scorer)
        if isinstance(store, FailStop):
            background["the watch over the store"] = _report(store.lost, on_lost)
        for name, work in background.items():
            await stack.enter_async_context(_background(work, name=name))
        yield services


async def _report(lost: Callable[[], Awaitable[str]], on_lost: Callable[[str], None]) -> None:
    on_lost(await lost())


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


def assembled(
    settings: Settings, scorer: Scorer, store: Store, *, telemetry: Telemetry
) -> Services:
    """Makes the services around a started scorer and an open store."""
    _show(scorer.identity, telemetry)
    defaults = _defaults(settings)
    admission = Admission(
        max_pending=settings.max_pending,
        telemetry=telemetry,
        rate_limits=RateLimits(store, telemetry),
    )
    limits = Limits(
        max_batch=admission.largest_request,
        max_body_bytes=settings.max_body_bytes,
        max_prompt_tokens=scorer.identity.max_prompt_tokens,
    )
    calibrations = Calibrations(
        store,
        telemetry,
        max_staleness_s=settings.max_staleness_s,
        min_label_mass=settings.min_label_mass,
    )
    auditor = Auditor(
        store,
        telemetry,
        fingerprint=scorer.identity.fingerprint,
        rate=settings.audit_rate,
        expires_s=settings.audit_expires_s,
        default=defaults,
        keeps_texts=settings.audit_texts,
    )
    monitor = Monitor(auditor, calibrations, telemetry, on_alarm=settings.on_alarm)
    drift = Drift(calibrations, telemetry, replicas=settings.replicas)
    # The scorer of requests; checks of the judge use the one without kept scores.
    scoring = _cached(scorer, settings, store, telemetry)
    asked_first = scorer.small if isinstance(scorer, CascadeScorer) else scorer
    judge = Judge(scoring, calibrations, telemetry, monitor=monitor, observers=(drift, auditor))
    rewarder = Rewarder(
        judge,
        admission,
        most=limits.max_batch,
        most_characters=_REWARD_GROWTH * limits.max_body_bytes,
    )
    calibrator = Calibrator(scoring, store, calibrations)
    return Services(
        scorer=scorer,
        judge=judge,
        rewarder=rewarder,
        calibrator=calibrator,
        calibrations=calibrations,
        drift=drift,
        auditor=auditor,
        monitor=monitor,
        changes=Changes(auditor, calibrator, calibrations, monitor, drift),
        store=store,
        admission=admission,
        readiness=Readiness(asked_first, store, calibrations, telemetry),
        telemetry=telemetry,
        limits=limits,
        defaults=defaults,
        cascade_slack=settings.cascade_slack,
    )


def _defaults(settings: Settings) -> CriterionDefaults:
    return CriterionDefaults(
        alpha=settings.default_alpha,
        guarantee="pac" if settings.escalate_url else settings.default_guarantee,
        delta=settings.default_delta,
    )


def _cached(scorer: Scorer, settings: Settings, store: Store, telemetry: Telemetry) -> Scorer:
    if settings.score_cache == "off":
        return scorer
    if isinstance(scorer, CascadeScorer):
        small, large = (
            _cached(one, settings, store, telemetry) for one in (scorer.small, scorer.large)
        )
        return replace(scorer, small=small, large=large)
    return CachingScorer(scorer, store, telemetry, seconds=settings.score_cache, slots=_MOST_SCORES)


def _show(identity: JudgeIdentity, telemetry: Telemetry) -> None:
    """Shows the judge, and the errors that alerts wait for, in the metrics."""
    # Prometheus sees no increase when a series appears with its first value.
    telemetry.engine_errors.labels(EngineUnavailableError.code)
    telemetry.engine_errors.labels(OverloadedError.code)
    telemetry.problems.labels(OverloadedError.code)
    telemetry.show_judge(
        identity.name, fingerprint=identity.fingerprint, version=__version__, commit=COMMIT
    )
