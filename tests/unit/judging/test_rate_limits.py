"""Tests of the limit of comparisons a minute for a key."""

import asyncio

import pytest

from app.core.errors import RateLimitedError
from app.flow import Flow
from app.judging.admission import RateLimits
from app.observability.telemetry import Telemetry
from app.stores.memory import MemoryStore
from tests.patience import Clock

LIMITED = Flow(key="a", comparisons_per_minute=60)


class HangingStore(MemoryStore):
    async def charge(self, caller: str, cost_s: float, *, most_owed_s: float) -> float | None:
        return await asyncio.Event().wait()


@pytest.fixture(params=[MemoryStore, HangingStore])
def limited(request: pytest.FixtureRequest) -> tuple[RateLimits, Clock]:
    clock = Clock()
    return RateLimits(request.param(), Telemetry.on_own_registry(), clock), clock


async def test_a_minute_can_be_spent_at_once_and_comes_back_evenly(
    limited: tuple[RateLimits, Clock],
) -> None:
    limits, clock = limited
    await limits.spend(LIMITED, 59)
    await limits.spend(LIMITED, 1)
    with pytest.raises(RateLimitedError, match="'a' may have 60 comparisons a minute") as raised:
        await limits.spend(LIMITED, 1)
    assert raised.value.retry_after_s == 1
    clock.now = 1.0
    await limits.spend(LIMITED, 1)
    with pytest.raises(RateLimitedError):
        await limits.spend(LIMITED, 1)


async def test_a_request_is_taken_whole_and_paid_back_before_the_next(
    limited: tuple[RateLimits, Clock],
) -> None:
    limits, clock = limited
    await limits.spend(LIMITED, 1000)
    with pytest.raises(RateLimitedError) as raised:
        await limits.spend(LIMITED, 1)
    wait_s = raised.value.retry_after_s
    assert wait_s == 941
    clock.now = wait_s - 1.0
    with pytest.raises(RateLimitedError):
        await limits.spend(LIMITED, 1)
    clock.now = float(wait_s)
    await limits.spend(LIMITED, 1)


async def test_no_more_than_a_minute_is_saved_up(limited: tuple[RateLimits, Clock]) -> None:
    limits, clock = limited
    await limits.spend(LIMITED, 1)
    clock.now = 3600.0
    await limits.spend(LIMITED, 60)
    with pytest.raises(RateLimitedError):
        await limits.spend(LIMITED, 1)


async def test_keys_count_for_themselves_and_a_key_without_a_limit_never_waits() -> None:
    limits = RateLimits(MemoryStore(), Telemetry.on_own_registry(), Clock())
    await limits.spend(LIMITED, 60)
    await limits.spend(Flow(key="b", comparisons_per_minute=60), 60)
    for _ in range(3):
        await limits.spend(Flow(key="c"), 10**6)
