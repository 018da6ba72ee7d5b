"""Tests of the number of admitted comparisons, and of the refusals above it."""

import asyncio
from contextlib import ExitStack

import pytest

from app.core.errors import OverloadedError
from app.service.admission import Admission
from app.telemetry import Telemetry


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def admission_of(max_pending: int, clock: Clock | None = None) -> tuple[Admission, Telemetry]:
    telemetry = Telemetry.on_own_registry()
    return Admission(
        max_pending=max_pending, telemetry=telemetry, clock=clock or Clock()
    ), telemetry


def test_comparisons_are_counted_instead_of_requests() -> None:
    admission, telemetry = admission_of(100)
    with ExitStack() as held:
        held.enter_context(admission.admit(80))
        with pytest.raises(OverloadedError, match="80 comparisons are in progress"):
            held.enter_context(admission.admit(21))
        held.enter_context(admission.admit(1))
        assert b"scope_pending_comparisons 81.0" in telemetry.exposition()[0]
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


def test_slots_are_released_when_the_work_fails() -> None:
    admission, _ = admission_of(8)
    for _ in range(20):
        with pytest.raises(ValueError, match="broken"), admission.admit(7):
            raise ValueError("broken")
    with admission.admit(8):
        pass


def test_one_slot_in_eight_is_reserved_for_small_requests() -> None:
    admission, _ = admission_of(80)
    assert admission.largest_request == 70
    with ExitStack() as held:
        held.enter_context(admission.admit(70))
        with pytest.raises(OverloadedError):
            held.enter_context(admission.admit(9))
        for _ in range(10):
            admission.check_room()
            held.enter_context(admission.admit(1))
        with pytest.raises(OverloadedError):
            admission.check_room()
        with pytest.raises(OverloadedError):
            held.enter_context(admission.admit(1))


@pytest.mark.parametrize("max_pending", [1, 2, 7, 8, 9, 4096])
def test_the_largest_request_is_admitted_if_nothing_is_in_progress(max_pending: int) -> None:
    admission, _ = admission_of(max_pending)
    with admission.admit(admission.largest_request):
        pass


def test_a_request_without_a_comparison_is_always_admitted() -> None:
    admission, _ = admission_of(1)
    with admission.admit(1), admission.admit(0):
        pass


def test_retry_after_is_the_pending_comparisons_over_the_recent_rate() -> None:
    clock = Clock()
    admission, _ = admission_of(1000, clock)

    def retry_after_s(waiting: int) -> int:
        with (
            admission.admit(waiting),
            pytest.raises(OverloadedError) as refused,
            admission.admit(1000),
        ):
            pass
        # Comparisons that were only admitted do not count as finished.
        admission._finished_count -= admission._finished.pop()[1]
        return refused.value.retry_after_s

    assert retry_after_s(500) == 1
    # 200 comparisons were finished in the 9 s since the first.
    for _ in range(10):
        clock.now += 1.0
        with admission.admit(20):
            pass
    assert retry_after_s(500) == 23
    assert retry_after_s(875) == 30
    assert retry_after_s(10) == 1
    clock.now += 60.0
    assert retry_after_s(500) == 1


async def started(*tasks: asyncio.Task[None]) -> None:
    """Lets tasks run until each waits or has ended."""
    for _ in range(5):
        await asyncio.sleep(0)


class Guest:
    """A request that takes its slots in turn and holds them until it is sent away."""

    def __init__(self, admission: Admission, comparisons: int) -> None:
        self.admitted, self.leave = False, asyncio.Event()
        self.task = asyncio.create_task(self._stay(admission, comparisons))

    async def _stay(self, admission: Admission, comparisons: int) -> None:
        async with admission.admit_in_turn(comparisons):
            self.admitted = True
            await self.leave.wait()


async def guests(admission: Admission, *sizes: int) -> list[Guest]:
    found = [Guest(admission, size) for size in sizes]
    await started()
    return found


@pytest.mark.anyio
async def test_requests_wait_for_their_slots_in_the_order_of_arrival() -> None:
    admission, telemetry = admission_of(80)
    first, large, small = await guests(admission, 60, 30, 1)
    # The small one has room, but it came later.
    assert [each.admitted for each in (first, large, small)] == [True, False, False]
    first.leave.set()
    await first.task
    await started()
    assert large.admitted
    assert small.admitted
    assert b"scope_pending_comparisons 31.0" in telemetry.exposition()[0]
    for each in (large, small):
        each.leave.set()
        await each.task
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


@pytest.mark.anyio
async def test_a_request_that_is_cancelled_while_it_waits_lets_the_next_one_in() -> None:
    admission, telemetry = admission_of(80)
    first, large, small = await guests(admission, 60, 30, 1)
    large.task.cancel()
    await started()
    assert large.task.cancelled()
    assert small.admitted
    small.task.cancel()
    first.task.cancel()
    await started()
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


@pytest.mark.anyio
async def test_slots_are_given_back_if_a_request_is_cancelled_as_it_gets_them() -> None:
    admission, telemetry = admission_of(8)
    with admission.admit(8):
        (guest,) = await guests(admission, 7)
    # Its slots are taken for it, and it has not run since.
    assert b"scope_pending_comparisons 7.0" in telemetry.exposition()[0]
    guest.task.cancel()
    await started()
    assert not guest.admitted
    assert b"scope_pending_comparisons 0.0" in telemetry.exposition()[0]


@pytest.mark.anyio
async def test_a_batch_does_not_pass_those_who_wait_and_a_small_request_does() -> None:
    admission, _ = admission_of(80)
    first, large = await guests(admission, 60, 30)
    with pytest.raises(OverloadedError, match="30 more wait"), admission.admit(9):
        pass
    with admission.admit(8):
        pass
    for each in (first, large):
        each.task.cancel()
    await started()
    with admission.admit(70):
        pass


@pytest.mark.anyio
async def test_a_group_without_a_comparison_does_not_wait() -> None:
    admission, _ = admission_of(8)
    first, waiting, nothing = await guests(admission, 7, 7, 0)
    assert nothing.admitted
    for each in (first, waiting, nothing):
        each.task.cancel()
    await started()
