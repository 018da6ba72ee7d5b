"""Limits the comparisons of a key to a number a minute, on average."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.core.errors import RateLimitedError
from app.fair_queue import Flow


@dataclass(kw_only=True, slots=True)
class _Allowance:
    """The comparisons that are left to a key; below zero after a request with more than that."""

    left: float
    at: float


class RateLimits:
    """Refuses requests of keys that have used up their comparisons a minute.

    A key may spend the comparisons of one minute at once, and gets them back evenly. A request is
    taken whole if anything is left; the key then pays back what was missing. So no request is too
    large for a limit, and the average holds. Each replica counts for itself.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Name of a key with a limit -> what is left to it.
        self._allowances: dict[str, _Allowance] = {}

    def check(self, flow: Flow) -> None:
        """Raises RateLimitedError if nothing is left to the key of a flow."""
        limit = flow.comparisons_per_minute
        if limit is None:
            return
        left = self._left(flow.key, limit)
        if left < 1:
            wait_s = math.ceil((1 - left) * 60 / limit)
            raise RateLimitedError(
                f"the key {flow.key!r} may have {limit} comparisons a minute and has used them: "
                f"try again in {wait_s} s",
                retry_after_s=wait_s,
            )

    def spend(self, flow: Flow, comparisons: int) -> None:
        """Takes comparisons from what is left to the key of a flow.

        Raises:
            RateLimitedError: Nothing is left; nothing was taken.
        """
        limit = flow.comparisons_per_minute
        if limit is not None:
            self.check(flow)
            left = self._left(flow.key, limit) - comparisons
            self._allowances[flow.key] = _Allowance(left=left, at=self._clock())

    def _left(self, key: str, limit: int) -> float:
        allowance = self._allowances.get(key)
        if allowance is None:
            return limit
        return min(limit, allowance.left + (self._clock() - allowance.at) * limit / 60)
