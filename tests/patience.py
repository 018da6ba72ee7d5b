"""Time in tests: a clock, timeouts that only a hang exceeds, and the wait for an event.

A machine three times slower, with other work on both its cores, takes ten times as long as a quiet
one. Tests use these timeouts instead of their own, so that they pass on any machine.
"""

import asyncio
import time
from collections.abc import Callable

# A start of the service takes 3 s on two quiet cores, and 33 s at a load of 10.
PATIENCE_S = 300.0
# A start with vLLM loads a model, compiles, and calibrates the demo judge.
VLLM_START_S = 600.0


async def until(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - a condition of any kind has no event
            await asyncio.sleep(0.001)


def wait_until(holds: Callable[[], object]) -> None:
    """Waits until a condition of another process holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "what a test waits for does not happen"
        time.sleep(0.01)


class Clock:
    """A clock that moves only when a test sets it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
