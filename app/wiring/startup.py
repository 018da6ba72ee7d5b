"""Steps of a start before the service is ready: probe the judge, calibrate the demo judge."""

from typing import Protocol

from app.core.errors import StoreCorruptError
from app.service.calibration.bundled import is_outdated, labelled_comparisons
from app.service.calibration.cache import DEFAULT_CALIBRATION
from app.service.judging.judge import Score
from app.service.services import Services
from app.settings import Settings
from app.wiring.engines import DEMO, DEMO_FOLDER
from app.wiring.stores import is_own_file

# A judge with less label mass would most likely answer with something other than a label.
LEAST_LABEL_MASS = 0.5


class StartupObserver(Protocol):
    """Receives the progress of a start, for people who wait for it."""

    def stage(self, text: str) -> None:
        """Called when a new stage begins."""

    def note(self, text: str) -> None:
        """Called with a fact that somebody may want to know."""

    def warning(self, text: str) -> None:
        """Called with a problem that does not stop the service but needs attention."""

    def calibrated(self, done: int, total: int) -> None:
        """Called with the number of the bundled pairs that have been judged."""


async def check_answers(services: Services, observer: StartupObserver) -> None:
    """Warns if the judge would most likely answer with something other than a label."""
    score = await services.readiness.probe()
    if isinstance(score, Score) and score.label_mass < LEAST_LABEL_MASS:
        prefill = services.identity.prefill
        advice = f"without the prefill {prefill!r}" if prefill else 'SCOPE_PREFILL="[["'
        observer.warning(
            f"the labels A and B together have a probability of only {score.label_mass:.1e} in "
            f"this judge's answer, so its preferences are unreliable; try {advice}"
        )


async def prepare_default(
    services: Services, settings: Settings, observer: StartupObserver
) -> None:
    """Reads the default calibration set, and calibrates the demo judge if its set is missing.

    The demo judge's set is made in the same way as by POST /calibrate. An outdated set in a SQLite
    store is replaced: an earlier release made it from the bundled pairs alone, so this judge cannot
    use its thresholds.
    """
    try:
        known = await services.calibrations.current(DEFAULT_CALIBRATION)
    except StoreCorruptError as exc:
        # Start all the same, because only a running service can delete the set.
        observer.warning(f"Starting without a default calibration: {exc.detail}")
        return
    if settings.engine != "vllm" or settings.model != DEMO:
        return
    examples = labelled_comparisons(DEMO_FOLDER / "calibrate.jsonl")
    if known is not None:
        # Never replace a set in Redis: other replicas may judge with it.
        if not is_own_file(settings.store_url) or not await is_outdated(known, examples, services):
            return
        observer.stage("Deleting the default calibration, made by an earlier release of this judge")
        await services.calibrator.delete(DEFAULT_CALIBRATION)
    observer.stage(f"Calibrating with {len(examples)} labelled pairs")
    await services.calibrator.add(
        DEFAULT_CALIBRATION,
        examples,
        on_progress=lambda done: observer.calibrated(done, len(examples)),
    )
