"""Tests of the number of admitted comparisons, of refusals above it, and of waiting in turn."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from app.core.errors import OverloadedError
from app.flow import Flow, Kind, flowing
from app.judging.admission import Admission, RateLimits
from app.observability.telemetry import Telemetry
from app.stores.memory import MemoryStore


def admission_of(max_pending: int) -> tuple[Admission, Telemetry]:
    telemetry = Telemetry.on_own_registry()
    admission = Admission(
        max_pending=max_pending,
        telemetry=telemetry,
        rate_limits=RateLimits(MemoryStore(), telemetry),
    )
    return admission, telemetry


async def test_comparisons_are_counted_instead_of_requests() -> None:
    admission, telemetry = admission_of(100)
    async with AsyncExitStack() as held:
        await held.enter_async_context(admission.admit(80))
        with pytest.raises(OverloadedError, match="80 comparisons are in progress"):
            await held.enter_async_context(admission.admit(21))
        await held.enter_async_context(admission.admit(1))
        assert b"scope_pending_comparisons 81.0" in telemetry.exposition()[0]
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


async def test_slots_are_released_when_the_work_fails() -> None:
    admission, _ = admission_of(8)
    for _ in range(20):
        with pytest.raises(ValueError, match="broken"):
            async with admission.admit(7):
                raise ValueError("broken")
    async with admission.admit(7):
        pass


async def test_one_slot_in_eight_is_reserved_for_small_requests() -> None:
    admission, _ = admission_of(80)
    assert admission.largest_request == 40
    async with AsyncExitStack() as held:
        await held.enter_async_context(admission.admit(40))
        await held.enter_async_context(admission.admit(30))
        with pytest.raises(OverloadedError):
            await held.enter_async_context(admission.admit(9))
        for _ in range(10):
            await held.enter_async_context(admission.admit(1))
        with pytest.raises(OverloadedError):
            await held.enter_async_context(admission.admit(1))


@pytest.mark.parametrize("max_pending", [1, 2, 7, 8, 9, 4096])
async def test_the_largest_request_is_admitted_if_nothing_is_in_progress(max_pending: int) -> None:
    admission, _ = admission_of(max_pending)
    async with admission.admit(admission.largest_request):
        pass


async def test_a_request_without_a_comparison_is_always_admitted() -> None:
    admission, _ = admission_of(1)
    async with admission.admit(1), admission.admit(0):
        pass


async def started() -> None:
    """Lets tasks run until each waits or has ended."""
    for _ in range(5):
        await asyncio.sleep(0)


class Guest:
    """A request that takes its places in turn and holds them until it is sent away."""

    def __init__(
        self,
        admission: Admission,
        comparisons: int,
        *,
        caller: str = "one",
        kind: Kind = "rewards",
    ) -> None:
        self.admitted, self.leave = False, asyncio.Event()
        flow = Flow(caller=caller, kind=kind)
        self.task = asyncio.create_task(self._stay(admission, comparisons, flow))

    async def _stay(self, admission: Admission, comparisons: int, flow: Flow) -> None:
        with flowing(flow):
            async with admission.admit(comparisons, patient=flow.kind == "rewards"):
                self.admitted = True
                await self.leave.wait()

    async def leaves(self) -> None:
        self.leave.set()
        await self.task
        await started()

    async def is_refused(self) -> bool:
        await started()
        return self.task.done() and isinstance(self.task.exception(), OverloadedError)


async def guests(admission: Admission, *sizes: int) -> list[Guest]:
    found = [Guest(admission, size) for size in sizes]
    await started()
    return found


async def all_leave(*guests: Guest) -> None:
    for guest in guests:
        guest.task.cancel()
    await started()


async def test_rewards_wait_for_their_places_in_the_order_of_arrival() -> None:
    admission, telemetry = admission_of(80)
    first, large, small = await guests(admission, 60, 30, 11)
    # The last one has room, but it came later.
    assert [each.admitted for each in (first, large, small)] == [True, False, False]
    await first.leaves()
    assert large.admitted
    assert small.admitted
    assert b"scope_pending_comparisons 41.0" in telemetry.exposition()[0]
    await large.leaves()
    await small.leaves()
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


async def test_a_request_that_is_cancelled_while_it_waits_lets_the_next_one_in() -> None:
    admission, telemetry = admission_of(80)
    first, large, small = await guests(admission, 60, 30, 10)
    large.task.cancel()
    await started()
    assert large.task.cancelled()
    assert small.admitted
    await all_leave(small, first)
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


async def test_places_are_given_back_if_a_request_is_cancelled_as_it_gets_them() -> None:
    admission, telemetry = admission_of(8)
    async with admission.admit(7):
        (guest,) = await guests(admission, 7)
    # Its places are taken for it, and it has not run since.
    assert b"scope_pending_comparisons 7.0" in telemetry.exposition()[0]
    assert not guest.admitted
    await all_leave(guest)
    assert not guest.admitted
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


async def test_small_requests_pass_the_waiting_ones_on_the_reserved_places_only() -> None:
    admission, _ = admission_of(80)
    first = Guest(admission, 60)
    await started()
    large = Guest(admission, 30, caller="other")
    await started()
    # 10 of the other places are free, but the large request is next.
    passing = [Guest(admission, 5, kind="single") for _ in range(3)]
    await started()
    assert [each.admitted for each in passing] == [True, True, False]
    await all_leave(first, large, *passing)
    async with admission.admit(70):
        pass


async def test_who_has_the_share_is_refused_and_who_has_less_waits() -> None:
    admission, _ = admission_of(80)
    greedy = [Guest(admission, 10, caller="greedy", kind="batch") for _ in range(7)]
    await started()
    assert all(each.admitted for each in greedy)
    # Alone, it is refused at once. Later callers have half of the 70 places, then a third.
    assert await Guest(admission, 10, caller="greedy", kind="batch").is_refused()
    others = [Guest(admission, 10, caller="other", kind="batch") for _ in range(3)]
    assert not any([await each.is_refused() for each in others])
    assert await Guest(admission, 10, caller="other", kind="batch").is_refused()
    # A flow without any request always waits, however large its request is.
    large = Guest(admission, 70, caller="third", kind="batch")
    assert not await large.is_refused()
    assert not large.admitted
    small = [Guest(admission, 1, caller="other", kind="single") for _ in range(10)]
    await started()
    await all_leave(*greedy, *others, *small, large)
    async with admission.admit(70):
        pass
