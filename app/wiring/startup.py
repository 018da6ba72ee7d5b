"""Steps of a start: probe the judge, calibrate the demo judge, and, once ready, check the judge."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Protocol

from app.core.comparison import Comparison, LabeledComparison
from app.core.errors import StoreCorruptError
from app.core.preference import Score
from app.flow import off_loop
from app.judges.checking import CHECKED, check_judge
from app.judges.label_logits import LabelLogitScorer
from app.judging.services import Services
from app.sets.cache import DEFAULT_CALIBRATION
from app.settings import DEMO, DEMO_FOLDER, Settings

logger = logging.getLogger("app.judge")
_log = logging.getLogger("app")

# Interval at which the check of the judge looks whether the service has nothing else to do.
_IDLE_POLL_S = 0.2


class StartupObserver(Protocol):
    """Receives the progress of a start, for people who wait for it."""

    def stage(self, text: str) -> None:
        """Called when a new stage begins."""

    def note(self, text: str) -> None:
        """Called with a message for people."""

    def warning(self, text: str) -> None:
        """Called with a problem that does not stop the service but needs attention."""


class LoggingObserver:
    """Logs the progress of a start."""

    def stage(self, text: str) -> None:
        """Logs the stage."""
        _log.info("%s", text)

    note = stage

    def warning(self, text: str) -> None:
        """Logs the warning."""
        _log.warning("%s", text)


async def check_answers(services: Services, observer: StartupObserver) -> None:
    """Warns if the score of a plain comparison shows that the judge is unreliable."""
    score = await services.readiness.probe()
    weakness = services.scorer.weakness(score) if isinstance(score, Score) else None
    if weakness is not None:
        observer.warning(weakness)


async def prepare_default(
    services: Services, settings: Settings, observer: StartupObserver
) -> None:
    """Reads the default calibration set, and calibrates the demo judge if it never had one.

    The demo judge's set is made in the same way as by POST /calibrate. A deleted set stays deleted.
    """
    try:
        known = await services.calibrations.current(DEFAULT_CALIBRATION)
    except StoreCorruptError as exc:
        # Start nevertheless, because only a running service can delete the set.
        observer.warning(f"Starting without a default calibration: {exc.detail}")
        return
    if (settings.engine, settings.model) != ("vllm", DEMO) or settings.escalate_url:
        # A cascade needs a plan before its first label.
        return
    pairs = DEMO_FOLDER / "calibrate.jsonl"
    if known is not None:
        if known.fingerprint != services.identity.fingerprint:
            observer.note(
                "The default calibration belongs to another judge, such as that of another "
                f"release. For this one: scope-judge calibrate {pairs} --name default --replace"
            )
        return
    if await services.store.head(DEFAULT_CALIBRATION) is not None:
        observer.note("The default calibration was deleted, and stays so")
        return
    examples = _labeled_comparisons(pairs)
    observer.stage(f"Calibrating with {len(examples)} labeled pairs")
    await services.calibrator.add(DEFAULT_CALIBRATION, examples)


def bundled_comparisons() -> list[Comparison]:
    """The comparisons on which a judge is checked; the demo judge has not learnt them."""
    examples = _labeled_comparisons(DEMO_FOLDER / "try.jsonl")
    return [example.comparison for example in examples[:CHECKED]]


def _labeled_comparisons(path: Path) -> list[LabeledComparison]:
    """Reads shipped pairs: JSONL with the fields question, response_a, response_b and label."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        LabeledComparison(
            comparison=Comparison.of(row["question"], row["response_a"], row["response_b"]),
            label=row["label"],
        )
        for row in rows
    ]


async def check_in_background(services: Services, scorer: LabelLogitScorer) -> None:
    """Checks a ready judge while nobody waits for a judgment; shows and logs the outcome."""

    async def idle() -> None:
        # Admission has no event for this, and the check may wait.
        while services.admission.pending:  # noqa: ASYNC110
            await asyncio.sleep(_IDLE_POLL_S)

    check = await check_judge(
        scorer,
        await off_loop(bundled_comparisons),
        threshold=await _default_threshold(services),
        pause=idle,
    )
    services.telemetry.show_check(check.resolution, check.noise)
    logger.info(
        "check of the judge: %d of %d scores are distinct; gaps of %d pairs differ by at most %.2g "
        "(95%% by at most %.2g) with other pairs around them, and %d get another verdict",
        check.resolution.distinct,
        check.resolution.prompts,
        check.noise.pairs,
        check.noise.largest,
        check.noise.p95,
        check.noise.flips,
    )
    for warning in check.warnings:
        logger.warning("%s", warning)


async def _default_threshold(services: Services) -> float | None:
    """The threshold of a request that names none; None if it accepts nothing."""
    known, defaults = services.calibrations.in_memory(DEFAULT_CALIBRATION), services.defaults
    if known is None or known.fingerprint != services.identity.fingerprint:
        return None
    row = await off_loop(known.row, defaults.alpha, defaults.guarantee, defaults.delta)
    return row.threshold
