"""Tests of work in the shared threads: errors, and callers who leave."""

import asyncio
import threading

import pytest

from app.fair_queue import CURRENT_FLOW, Flow, flowing
from app.off_loop import off_loop
from tests.patience import PATIENCE_S


async def test_work_of_callers_who_left_is_dropped() -> None:
    go_on, done = threading.Semaphore(0), list[int]()

    def work(number: int) -> None:
        assert go_on.acquire(timeout=PATIENCE_S)
        done.append(number)

    leaving = [asyncio.create_task(off_loop(work, number)) for number in range(60)]
    for _ in range(3):
        await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    go_on.release(3)
    await off_loop(work, 60)
    # Only what had begun is done.
    assert len(done) <= 3


async def test_a_failure_is_raised_where_the_work_is_awaited_and_frees_the_thread() -> None:
    def fail() -> None:
        raise LookupError("broken")

    for _ in range(5):
        with pytest.raises(LookupError, match="broken"):
            await off_loop(fail)
    assert await off_loop(max, 1, 2) == 2


async def test_the_work_belongs_to_the_same_caller_in_its_thread() -> None:
    flow = Flow(caller="a", kind="rewards")
    with flowing(flow):
        assert await off_loop(CURRENT_FLOW.get) == flow
    assert await off_loop(CURRENT_FLOW.get) == Flow()
