"""Keeps a store that hangs from holding up judgments."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.core.errors import StoreCorruptError, StoreUnavailableError
from app.observability.telemetry import Telemetry

T = TypeVar("T")

# A judgment does not wait longer for the store, and does not ask it again for a while.
_PATIENCE_S = 0.25
_PAUSE_S = 5.0


class CircuitBreaker:
    """Asks the store for what a judgment can do without."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._paused_until = -math.inf

    async def ask(self, call: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """Asks the store; returns `otherwise` if it does not answer in time."""
        if self._clock() < self._paused_until:
            return otherwise
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await call()
        except (TimeoutError, StoreUnavailableError, StoreCorruptError):
            self._telemetry.store_errors.inc()
            self._paused_until = self._clock() + _PAUSE_S
            return otherwise
