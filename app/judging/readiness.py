"""Checks whether the service can judge right now."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from app.core.comparison import Comparison
from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    ScopeJudgeError,
    StoreUnavailableError,
)
from app.core.preference import NoScore, Score
from app.flow import Flow, flowing
from app.judges.scorer import Scorer
from app.observability.telemetry import Telemetry
from app.ports import SetStore, ahead_of_queue
from app.sets.cache import Calibrations

_PROBE = Comparison.of("Which is larger, 2 or 1?", "2", "1")
# A check answers within this time, because a proxy's check ends after about two seconds.
_ANSWERS_WITHIN_S = 1.0
# The judge does not answer if it was asked for so long in vain.
SILENT_S = 10.0
# Pauses without a successful probe after which the judge hangs.
_HANG_PAUSES = 10

Sleep = Callable[[float], Awaitable[object]]


class Readiness:
    """Says whether the judge shows signs of life and the store answers.

    The judge is alive while it answers prompts. If it has not for a second, a check scores a fixed
    comparison, which goes ahead of the judge's queue. /readyz needs no key, so many requests must
    not cost more than one probe at a time: concurrent callers share one check.
    """

    def __init__(
        self,
        scorer: Scorer,
        store: SetStore,
        calibrations: Calibrations,
        telemetry: Telemetry,
    ) -> None:
        self._scorer = scorer
        self._store = store
        self._calibrations = calibrations
        self._telemetry = telemetry
        self._check: asyncio.Task[str | None] | None = None
        self._probe: asyncio.Task[Score | NoScore | ScopeJudgeError] | None = None
        # When the judge was first asked since its last answer, and the number of answers then.
        self._asked_at: float | None = None
        self._answers = 0

    async def probe(self) -> Score | NoScore | ScopeJudgeError:
        """Scores the fixed comparison, ahead of the judge's queue."""
        # Not the work of the caller who asks for the check.
        with ahead_of_queue(), flowing(Flow()):
            (score,) = await self._scorer.score([_PROBE])
        return score

    async def hung(self, after_s: float, *, sleep: Sleep = asyncio.sleep) -> str:
        """Waits until the judge has shown no sign of life for a time, and returns the reason.

        The time is counted in pauses, so that a process that was stopped in a debugger does not
        count as hanging.
        """
        silent, reason, answers = 0, "it does not answer", self._telemetry.answers
        probe = asyncio.create_task(self.probe())
        try:
            while silent < _HANG_PAUSES:
                await sleep(after_s / _HANG_PAUSES)
                silent += 1
                if answers != self._telemetry.answers:
                    silent, answers = 0, self._telemetry.answers
                if probe.done():
                    outcome = probe.exception() or probe.result()
                    if isinstance(outcome, Score | NoScore):
                        silent = 0
                    else:
                        reason = getattr(outcome, "code", type(outcome).__name__)
                    probe = asyncio.create_task(self.probe())
        finally:
            probe.cancel()
        return f"no probe of the judge has succeeded for {after_s:g} s ({reason})"

    async def check(self) -> str | None:
        """Checks that the service can judge; raises if it cannot. Takes at most about a second.

        A request may still fail because its calibration set is missing or of another judge.

        Returns:
            None; or a message if the store fails and judging continues with cached sets, or if the
            store has lost sets, whose callers alone get errors.

        Raises:
            ScopeJudgeError: The engine does not answer in time, or cannot judge the probe; or the
                store does not answer, and every cached calibration set is too old.
        """
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self._checked())
            self._check.add_done_callback(lambda check: check.cancelled() or check.exception())
        return await asyncio.shield(self._check)

    async def _checked(self) -> str | None:
        pinged = asyncio.create_task(self._store_trouble())
        try:
            await self._check_judge()
            return await pinged
        finally:
            pinged.cancel()
            await asyncio.gather(pinged, return_exceptions=True)

    async def _check_judge(self) -> None:
        if self._telemetry.silent_s < _ANSWERS_WITHIN_S:
            self._asked_at = None
            return
        if self._asked_at is None or self._answers != self._telemetry.answers:
            self._asked_at, self._answers = time.monotonic(), self._telemetry.answers
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self.probe())
            # Every caller may have left; asyncio would then log the error as never retrieved.
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())
        await asyncio.wait((self._probe,), timeout=_ANSWERS_WITHIN_S)
        if not self._probe.done():
            # A long batch can keep a slow judge from its next answer for some seconds.
            if time.monotonic() - self._asked_at < SILENT_S:
                return
            # The next probe may reach another server.
            self._probe.cancel()
            message = f"the judge did not answer within {SILENT_S:g} s"
            raise EngineUnavailableError(message) from TimeoutError()
        if isinstance(outcome := self._probe.result(), ScopeJudgeError):
            raise JudgmentFailedError("the judge cannot judge its own probe") from outcome
        self._asked_at = None

    async def _store_trouble(self) -> str | None:
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                await self._store.ping()
        except (TimeoutError, StoreUnavailableError) as exc:
            # The reason may contain the store's address, and /readyz needs no key: leave it out.
            if not self._calibrations.usable_without_store():
                raise StoreUnavailableError("the calibration store does not answer") from exc
            return "the calibration store does not answer; judging continues with cached thresholds"
        if lost := self._calibrations.lost():
            # Names of sets are not for everybody: the log and the metrics have them.
            return (
                f"the calibration store has lost {len(lost)} of the sets that this process judged "
                "by, and requests with them fail; the log and scope_calibration_lost name them"
            )
        return None
