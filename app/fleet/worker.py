"""One judge of a bulk run, loaded in a Ray actor on one machine."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from app.api.answers.judgments import judgment_batch
from app.api.requests.models import JudgeBatchIn, JudgeIn, PostedItems
from app.api.routing import to_json
from app.core.comparison import Case
from app.core.errors import (
    CalibrationNotFoundError,
    EngineUnavailableError,
    JudgeMismatchError,
    JudgmentFailedError,
    RequestError,
    ScopeJudgeError,
    StartupError,
    StoreCorruptError,
    StoreUnavailableError,
    UnavailableError,
)
from app.judging.judge import Asked
from app.judging.services import Services
from app.observability.logs import log_defect
from app.ports import Engine
from app.settings import Settings
from app.wiring.engines import make_engine
from app.wiring.services import open_services
from app.wiring.startup import LoggingObserver

logger = logging.getLogger("app.fleet")

# Tries of a batch on which judge or store fail, with pauses of 1 and 4 s between them.
_TRIES = 3
_PAUSE_S = 1.0


class BulkJudge:
    """Judges batches, and loads the judge again if it has died. All methods run on one event loop.

    The pause before the third try is four times as long as `pause_s`, that before the second.
    """

    def __init__(
        self,
        settings: Settings,
        criterion: Mapping[str, Any],
        *,
        pause_s: float = _PAUSE_S,
        new_engine: Callable[[Settings], Engine] = make_engine,
    ) -> None:
        self._settings = settings
        self._criterion = criterion
        self._pause_s = pause_s
        self._new_engine = new_engine
        self._services: Services | None = None
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()

    async def ready(self) -> tuple[str, str]:
        """Loads the judge; returns its fingerprint, or "" and the reason why it was refused."""
        try:
            services = await self._running()
        except ScopeJudgeError as exc:
            return "", exc.detail
        return services.identity.fingerprint, ""

    async def judge(self, comparisons: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
        """Judges comparisons as POST /judge/batch does.

        Returns:
            The JSON of each judgment, or of a comparison's own error; and the reason why nothing of
            the batch was judged, or "". Our exceptions cannot cross machines.
        """
        try:
            return await self._judged(comparisons), ""
        except ScopeJudgeError as exc:
            return [], exc.detail
        except Exception as exc:  # noqa: BLE001 - the message may contain a text of the user
            log_defect(exc)
            return [], f"unforeseen {type(exc).__qualname__}"

    async def close(self) -> None:
        """Frees the judge."""
        await self._opened.aclose()

    async def _judged(self, comparisons: Sequence[Any]) -> list[dict[str, Any]]:
        for attempt in range(1, _TRIES + 1):
            try:
                return await judge_rows(await self._running(), comparisons, self._criterion)
            except (UnavailableError, JudgmentFailedError, StoreCorruptError) as exc:
                logger.warning("try %d of %d on a batch failed: %s", attempt, _TRIES, exc.detail)
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(self._pause_s * 4 ** (attempt - 1))
        raise AssertionError("the last try returns or raises")

    async def _running(self) -> Services:
        """The services; opens them if needed."""
        async with self._opening:
            if self._services is None:
                await self._opened.aclose()
                opened = open_services(
                    self._settings,
                    LoggingObserver(),
                    on_lost=self._lost,
                    new_engine=self._new_engine,
                )
                try:
                    self._services = await self._opened.enter_async_context(opened)
                except StartupError as exc:
                    raise EngineUnavailableError(exc.detail) from exc
            return self._services

    def _lost(self, reason: str) -> None:
        logger.warning("%s; it is loaded again for the next try", reason)
        self._services = None


async def judge_rows(
    services: Services, comparisons: Sequence[Any], criterion: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The JSON of each judgment, or of a comparison's own error, in order; else raises.

    Raises:
        UnavailableError: Judge or store did not answer; no comparison has a result.
        JudgmentFailedError: The judge's answer does not match the comparisons.
        StoreCorruptError: A calibration cannot be read.
        StartupError: The criterion's calibration is missing or belongs to another judge.
    """
    batch = JudgeBatchIn.model_validate({**criterion, "comparisons": list(comparisons)})
    posted = PostedItems[Asked](
        JudgeIn, batch.comparisons, lambda item: item.asked(services.defaults, batch)
    )
    outcomes = await services.judge.judge_batch(posted.items)
    for asked, fields, outcome in zip(posted.items, comparisons, outcomes, strict=True):
        if not isinstance(asked, RequestError):
            _refuse_passing(outcome, has_own_calibration="calibration" in fields)
    return [json.loads(to_json(one)) for one in judgment_batch(posted.ids, outcomes).results]


def _refuse_passing(outcome: Case | ScopeJudgeError, *, has_own_calibration: bool) -> None:
    """Raises errors that are not the comparison's own: as results they would be permanent."""
    if isinstance(outcome, Case):
        if outcome.age_s > 0:
            # A file is read later, when nobody looks at the age of its thresholds.
            raise StoreUnavailableError("the calibration store does not confirm the thresholds")
        return
    if isinstance(outcome, UnavailableError | StoreCorruptError):
        raise outcome
    if not has_own_calibration and isinstance(
        outcome, CalibrationNotFoundError | JudgeMismatchError
    ):
        raise StartupError(outcome.detail) from outcome
