"""Tests of the limit of comparisons a minute for a key."""

import pytest

from app.core.errors import RateLimitedError
from app.fair_queue import Flow
from app.judging.rate_limits import RateLimits
from tests.unit.judging.test_admission import Clock

LIMITED = Flow(key="a", comparisons_per_minute=60)


def test_a_minute_can_be_spent_at_once_and_comes_back_evenly() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    limits.spend(LIMITED, 59)
    limits.spend(LIMITED, 1)
    with pytest.raises(RateLimitedError, match="'a' may have 60 comparisons a minute") as raised:
        limits.spend(LIMITED, 1)
    assert raised.value.retry_after_s == 1
    clock.now = 1.0
    limits.spend(LIMITED, 1)
    with pytest.raises(RateLimitedError):
        limits.check(LIMITED)


def test_a_request_is_taken_whole_and_paid_back_before_the_next() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    limits.spend(LIMITED, 1000)
    with pytest.raises(RateLimitedError) as raised:
        limits.check(LIMITED)
    wait_s = raised.value.retry_after_s
    assert wait_s == 941
    clock.now = wait_s - 1.0
    with pytest.raises(RateLimitedError):
        limits.check(LIMITED)
    clock.now = float(wait_s)
    limits.check(LIMITED)


def test_no_more_than_a_minute_is_saved_up() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    limits.spend(LIMITED, 1)
    clock.now = 3600.0
    limits.spend(LIMITED, 60)
    with pytest.raises(RateLimitedError):
        limits.check(LIMITED)


def test_keys_count_for_themselves_and_a_key_without_a_limit_never_waits() -> None:
    limits = RateLimits(Clock())
    limits.spend(LIMITED, 60)
    limits.spend(Flow(key="b", comparisons_per_minute=60), 60)
    for _ in range(3):
        limits.spend(Flow(key="c"), 10**6)
    # A limit that was lowered in the key file holds at once.
    limits = RateLimits(Clock())
    limits.spend(LIMITED, 1)
    limits.spend(Flow(key="a", comparisons_per_minute=5), 5)
    with pytest.raises(RateLimitedError):
        limits.check(Flow(key="a", comparisons_per_minute=5))
