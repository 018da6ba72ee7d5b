"""The worker of a bulk run: one loaded judge on one machine, called from Ray Data's threads."""

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.core.comparison import Judgment
from app.core.errors import (
    CalibrationNotFoundError,
    EngineUnavailableError,
    JudgeMismatchError,
    JudgmentFailedError,
    ScopeJudgeError,
    StartupError,
    StoreCorruptError,
    StoreUnavailableError,
    UnavailableError,
)
from app.fleet.job import Job
from app.fleet.output import Output
from app.fleet.parts import Part, PartRow
from app.main import LoggingObserver
from app.observability.logs import log_defect
from app.ports import Engine
from app.service.judging.judge import JudgeRequest
from app.service.services import Services
from app.settings import Settings
from app.wire.answers import JudgeBatchOut
from app.wire.requests import JudgeBatchIn
from app.wiring.engines import make_engine
from app.wiring.services import open_services

logger = logging.getLogger("app.fleet")

# Tries of a part on which judge or store fail, with pauses of 1 and 4 s between them.
_TRIES = 3
_PAUSE_S = 1.0
# Timeout to free the judge; vLLM takes 3 s to stop.
_CLOSE_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PartOutcome:
    """The outcome of one part.

    Args:
        part: Number of the part.
        kind: "done"; "failed", where a later try may succeed; or "refused", which holds for all
            parts.
        results: Number of results of a part that is done.
        detail: Reason why a part is not done.
    """

    part: int
    kind: Literal["done", "failed", "refused"]
    results: int = 0
    detail: str = ""


class PartWorker:
    """Judges parts; loads the judge with the first part, and again if the judge has died.

    Args:
        job: Settings, criterion and folder of the run.
        pause_s: Pause before the second try in seconds; the pause before the third is four times
            as long.
        new_engine: Makes the engine of the judge.
    """

    def __init__(
        self,
        job: Job,
        *,
        pause_s: float = _PAUSE_S,
        new_engine: Callable[[Settings], Engine] = make_engine,
    ) -> None:
        self._job = job
        self._new_engine = new_engine
        self._pause_s = pause_s
        self._output = Output(job.out)
        # Mutated only on the event loop.
        self._services: Services | None = None
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._refusal: StartupError | None = None
        self._has_run = False
        # vLLM needs an event loop that always runs, and Ray calls from threads.
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        # Frees the judge at the latest when Python exits, while its threads still run.
        self.close = weakref.finalize(self, _close, self._loop, thread, self._opened)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Judges {"number", "part"} and returns {"outcome"}; thread-safe."""
        return {"outcome": self.judge(row["number"], row["part"])}

    def judge(self, number: int, part: Part) -> PartOutcome:
        """Judges a part and writes its file, unless the part is done; thread-safe."""
        receipt = self._output.receipt(number)
        if receipt is not None:
            return PartOutcome(part=number, kind="done", results=receipt.results)
        judged = asyncio.run_coroutine_threadsafe(self._judged(part), self._loop)
        error = judged.exception()
        if isinstance(error, StartupError):
            return PartOutcome(part=number, kind="refused", detail=error.detail)
        if isinstance(error, ScopeJudgeError):
            return PartOutcome(part=number, kind="failed", detail=error.detail)
        if error is not None:
            # The message is dropped, because it may contain a text of the user.
            log_defect(error)
            return PartOutcome(
                part=number, kind="failed", detail=f"unforeseen {type(error).__qualname__}"
            )
        try:
            receipt = self._output.write_part(number, judged.result())
        except OSError as exc:
            return PartOutcome(part=number, kind="failed", detail=_unwritten(exc))
        return PartOutcome(part=number, kind="done", results=receipt.results)

    async def _judged(self, part: Part) -> list[dict[str, Any]]:
        rows = await asyncio.to_thread(part.read)
        for attempt in range(1, _TRIES + 1):
            try:
                services = await self._running()
                results = await judge_rows(services, rows, self._job.criterion)
                break
            except (UnavailableError, JudgmentFailedError, StoreCorruptError) as exc:
                logger.warning("try %d of %d on a part failed: %s", attempt, _TRIES, exc.detail)
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(self._pause_s * 4 ** (attempt - 1))
        return [
            {"input": {"shard": part.shard, "row": row.place}, **result}
            for row, result in zip(rows, results, strict=True)
        ]

    async def _running(self) -> Services:
        """The services; opens them if needed."""
        async with self._opening:
            if self._refusal is not None:
                raise self._refusal
            if self._services is None:
                try:
                    services = await self._open()
                    self._claim(services)
                except StartupError as exc:
                    # Kept for all parts, so that a judge that takes minutes is loaded only once.
                    self._refusal = exc
                    raise
                self._services, self._has_run = services, True
            return self._services

    async def _open(self) -> Services:
        await self._opened.aclose()
        opened = open_services(
            self._job.settings,
            LoggingObserver(),
            on_lost=self._lost,
            new_engine=self._new_engine,
        )
        try:
            return await self._opened.enter_async_context(opened)
        except StartupError as exc:
            if not self._has_run:
                raise
            # These settings have worked on this machine, so the cause may be transient.
            raise EngineUnavailableError(exc.detail) from exc

    def _claim(self, services: Services) -> None:
        judge = services.identity
        try:
            self._output.claim(judge=judge.name, fingerprint=judge.fingerprint)
        except OSError as exc:
            raise UnavailableError(_unwritten(exc)) from exc

    def _lost(self, reason: str) -> None:
        logger.warning("%s; it is loaded again for the next try", reason)
        self._services = None


def _unwritten(exc: OSError) -> str:
    return f"results cannot be written: {exc.strerror}"


def _close(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, opened: AsyncExitStack
) -> None:
    asyncio.run_coroutine_threadsafe(opened.aclose(), loop).result(_CLOSE_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSE_S)
    loop.close()


async def judge_rows(
    services: Services, rows: Sequence[PartRow], criterion: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Judges rows as POST /judge/batch does.

    Args:
        services: Running services.
        rows: Rows of a part.
        criterion: All fields of the criterion, as in the body of /judge/batch.

    Returns:
        For each row, in order, the JSON of its judgment or of its own error.

    Raises:
        UnavailableError: Judge or store did not answer; no row has a result.
        JudgmentFailedError: The judge's answer does not match the rows.
        StoreCorruptError: A calibration cannot be read.
        StartupError: The criterion's calibration is missing or belongs to another judge.
    """
    values = [row.value for row in rows]
    batch = JudgeBatchIn.model_validate({**criterion, "comparisons": values})
    items = [
        item if row.error is None else replace(item, asked=row.error)
        for row, item in zip(rows, batch.items(services.defaults), strict=True)
    ]
    outcomes = await services.judge.judge_batch([item.asked for item in items])
    for item, outcome in zip(items, outcomes, strict=True):
        if isinstance(item.asked, JudgeRequest):
            _refuse_passing(outcome, item.asked, criterion)
    return [result.model_dump(mode="json") for result in JudgeBatchOut.of(items, outcomes).results]


def _refuse_passing(
    outcome: Judgment | ScopeJudgeError, request: JudgeRequest, criterion: Mapping[str, Any]
) -> None:
    """Raises errors that are not the row's own: as results they would be permanent."""
    if isinstance(outcome, Judgment):
        if outcome.calibration is not None and outcome.calibration.age_s > 0:
            # A file is read later, when nobody looks at the age of its thresholds.
            raise StoreUnavailableError("the calibration store does not confirm the thresholds")
        return
    if isinstance(outcome, UnavailableError | StoreCorruptError):
        raise outcome
    by_job = (
        criterion["alpha"] is not None and request.criterion.calibration == criterion["calibration"]
    )
    if by_job and isinstance(outcome, CalibrationNotFoundError | JudgeMismatchError):
        raise StartupError(outcome.detail) from outcome
