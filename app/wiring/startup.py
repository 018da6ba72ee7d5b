"""What a start does before the service is ready: probes the judge, calibrates the demo judge."""

from typing import Protocol

from app.core.errors import StoreCorruptError
from app.service.calibration.bundled import is_outdated, labelled_comparisons
from app.service.calibration.cache import DEFAULT_CALIBRATION
from app.service.judging.judge import Score
from app.service.services import Services
from app.settings import Settings
from app.wiring.engines import DEMO, DEMO_FOLDER

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


async def check_answers(services: Services, observer: StartupObserver) -> None:
    """Says so if the judge would answer with something else than a label."""
    score = await services.readiness.probe()
    if isinstance(score, Score) and score.label_mass < _LEAST_LABEL_MASS:
        prefill = services.identity.prefill
        advice = f"without the prefill {prefill!r}" if prefill else 'with SCOPE_PREFILL="[["'
        observer.warning(
            f"A and B have only {score.label_mass:.1e} of the probability where this "
            f"judge answers, so its preferences mean little; try it {advice}"
        )


async def prepare_default(
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
