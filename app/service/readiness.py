"""Whether the service can judge right now."""

import asyncio
import logging

from app.core.comparison import Comparison
from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    ScopeJudgeError,
    StoreUnavailableError,
)
from app.ports import CalibrationStore
from app.service.calibration.cache import Calibrations
from app.service.judging.judge import Judge, Score

logger = logging.getLogger("app.readiness")

_PROBE = Comparison.of("Which is larger, 2 or 1?", "2", "1")
# A store that needs longer is of no use to judgments either.
_STORE_TIMEOUT_S = 2.0


class Readiness:
    """Judges a harmless comparison and reads the store, for all who ask at the same time.

    Anybody may ask, without a key: many who do so cost one probe at a time.

    Args:
        judge: Asked to judge.
        store: Read.
        calibrations: What judging can go on with where the store is gone.
        timeout_s: How long the judge may take.
    """

    def __init__(
        self, judge: Judge, store: CalibrationStore, calibrations: Calibrations, *, timeout_s: float
    ) -> None:
        self._judge = judge
        self._store = store
        self._calibrations = calibrations
        self._timeout_s = timeout_s
        self._check: asyncio.Task[str | None] | None = None

    async def probe(self) -> Score | ScopeJudgeError:
        """Scores a harmless comparison."""
        (score,) = await self._judge.score([_PROBE])
        return score

    async def check(self) -> str | None:
        """Returns if the judge judges, and the store answers or can be done without.

        A set that is asked for may still be missing, or belong to another judge.

        Returns:
            None, or what is missing where judging goes on without it.

        Raises:
            UnavailableError: The engine does not answer in time; or the store does not, and no
                calibration in memory is young enough to go on with.
            JudgmentFailedError: The engine answers with no judgment.
            StoreCorruptError: The store is not ours.
        """
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(self._checked())
            # Whoever asked may have left: an error that nobody waits for is none to report.
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
            # Where the store is, only the log says: anybody may ask here.
            why = str(exc) or f"nothing within {_STORE_TIMEOUT_S:g} s"
            logger.warning("the store does not answer: %s", why)
            if not self._calibrations.usable_without_store():
                raise StoreUnavailableError("the calibration store does not answer") from exc
            return "the calibration store does not answer; judging goes on with what is in memory"
        return None
