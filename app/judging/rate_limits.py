"""Limits the comparisons of a key to a number a minute, on average."""

import math
import time
from collections.abc import Callable

from app.circuit_breaker import CircuitBreaker
from app.core.errors import RateLimitedError
from app.fair_queue import Flow
from app.observability.telemetry import Telemetry
from app.ports import ScoreStore

_MINUTE_S = 60.0


class RateLimits:
    """Refuses requests of keys that have used up their comparisons a minute.

    A key may spend the comparisons of one minute at once, and gets them back evenly. A request is
    taken whole if anything is left; the key then pays back what was missing. So no request is too
    large for a limit, and the average holds. All replicas on one store count together; while the
    store does not answer, each counts for itself.
    """

    def __init__(
        self,
        store: ScoreStore,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._breaker = CircuitBreaker(telemetry, clock)
        self._clock = clock
        # Name of a key -> time at which it has paid back everything.
        self._paid_at: dict[str, float] = {}

    async def spend(self, flow: Flow, comparisons: int) -> None:
        """Takes comparisons from what is left to the key of a flow.

        Raises:
            RateLimitedError: Nothing is left; nothing was taken.
        """
        limit = flow.comparisons_per_minute
        if limit is None:
            return
        each_s = _MINUTE_S / limit
        # At most this is owed while one comparison is left.
        most_owed_s = _MINUTE_S - each_s
        cost_s = comparisons * each_s
        owed_s = await self._breaker.ask(
            lambda: self._store.charge(flow.key, cost_s, most_owed_s=most_owed_s), None
        )
        if owed_s is None:
            owed_s = self._charge(flow.key, cost_s, most_owed_s=most_owed_s)
        if owed_s > most_owed_s:
            wait_s = math.ceil(owed_s - most_owed_s)
            raise RateLimitedError(
                f"the key {flow.key!r} may have {limit} comparisons a minute and has used them: "
                f"try again in {wait_s} s",
                retry_after_s=wait_s,
            )

    def _charge(self, key: str, cost_s: float, *, most_owed_s: float) -> float:
        now = self._clock()
        owed_s = max(0.0, self._paid_at.get(key, now) - now)
        if owed_s <= most_owed_s:
            self._paid_at[key] = now + owed_s + cost_s
        return owed_s
