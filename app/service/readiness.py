"""Checks whether the service can judge right now."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.core.comparison import Comparison
from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    ScopeJudgeError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.core.score import Score
from app.ports import CalibrationStore
from app.service.calibration.cache import Calibrations
from app.service.scoring.scorer import Scorer

logger = logging.getLogger("app.readiness")

_PROBE = Comparison.of("Which is larger, 2 or 1?", "2", "1")
# Timeout of the ping only. A judgment waits for the store for 0.25 s if its set is cached, and
# otherwise until the store's own timeout (5 s for Redis).
_STORE_TIMEOUT_S = 2.0
# Pauses without a successful probe after which the judge hangs.
_HANG_PAUSES = 10

Sleep = Callable[[float], Awaitable[object]]


class Readiness:
    """Scores a fixed comparison and pings the store; concurrent callers share one check.

    /readyz needs no key, so many requests must not cost more than one probe at a time.

    Args:
        scorer: Scorer to probe.
        store: Calibration store to ping.
        calibrations: Cached calibration sets, with which judging continues without the store.
        timeout_s: Longest wait for the judge, in seconds.
    """

    def __init__(
        self,
        scorer: Scorer,
        store: CalibrationStore,
        calibrations: Calibrations,
        *,
        timeout_s: float,
    ) -> None:
        self._scorer = scorer
        self._store = store
        self._calibrations = calibrations
        self._timeout_s = timeout_s
        self._check: asyncio.Task[str | None] | None = None

    async def probe(self) -> Score | ScopeJudgeError:
        """Scores the fixed comparison."""
        (score,) = await self._scorer.score([_PROBE])
        return score

    async def hung(self, after_s: float, *, sleep: Sleep = asyncio.sleep) -> str:
        """Waits until no probe has succeeded for a time, and returns the reason.

        A probe may take the whole time, because a busy judge answers late. The time is counted in
        pauses, so that a process that was stopped in a debugger does not count as hanging.

        Args:
            after_s: The time, in seconds.
            sleep: Pauses for so many seconds.
        """
        failed, reason = 0, "it does not answer"
        probe: asyncio.Task[Score | ScopeJudgeError] | None = None
        try:
            while failed < _HANG_PAUSES:
                await sleep(after_s / _HANG_PAUSES)
                if probe is not None:
                    failed += 1
                    if not probe.done():
                        continue
                    outcome = probe.exception() or probe.result()
                    if isinstance(outcome, Score):
                        failed, probe = 0, None
                        continue
                    reason = getattr(outcome, "code", type(outcome).__name__)
                probe = asyncio.create_task(self.probe())
        finally:
            if probe is not None:
                probe.cancel()
        return f"no probe of the judge has succeeded for {after_s:g} s ({reason})"

    async def check(self) -> str | None:
        """Checks that the service can judge; raises if it cannot.

        A request may still fail because its calibration set is missing or of another judge.

        Returns:
            None; or a message if the store fails and judging continues with cached sets.

        Raises:
            UnavailableError: The engine does not answer in time; or the store does not, and every
                cached calibration set is too old.
            JudgmentFailedError: The engine cannot judge the fixed comparison.
            StoreCorruptError: The store contains data of another program, or has lost sets.
        """
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self._checked())
            # Every caller may have left; asyncio would then log the error as never retrieved.
            self._check.add_done_callback(lambda check: check.cancelled() or check.exception())
        return await asyncio.shield(self._check)

    async def _checked(self) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                score = await self.probe()
        except TimeoutError as exc:
            message = f"the judge did not answer within {self._timeout_s:g} s"
            raise EngineUnavailableError(message) from exc
        if isinstance(score, ScopeJudgeError):
            raise JudgmentFailedError("the judge cannot judge its own probe") from score
        return await self._store_trouble()

    async def _store_trouble(self) -> str | None:
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                await self._store.ping()
        except (TimeoutError, StoreUnavailableError) as exc:
            # The reason may contain the store's address. /readyz needs no key, so only log it.
            why = str(exc) or f"no answer within {_STORE_TIMEOUT_S:g} s"
            logger.warning("the store does not answer: %s", why)
            if not self._calibrations.usable_without_store():
                raise StoreUnavailableError("the calibration store does not answer") from exc
            return "the calibration store does not answer; judging continues with cached thresholds"
        if lost := self._calibrations.lost():
            # Names of sets are not for everybody: the log and the metrics have them.
            raise StoreCorruptError(
                f"the calibration store has lost {len(lost)} of the sets that this process judged "
                "by; the log and scope_calibration_lost name them"
            )
        return None
