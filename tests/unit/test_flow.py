"""Tests of work in the shared threads: turns, errors, and callers who leave."""

import asyncio
import gc
import threading
import time
import weakref
from contextlib import suppress

import pytest

from app.flow import CURRENT_FLOW, Flow, flowing, off_loop
from tests.patience import PATIENCE_S


class Works:
    """Pieces of work that end when a test lets them."""

    def __init__(self) -> None:
        self.go_on = threading.Semaphore(0)
        self.done: list[str] = []

    def do(self, caller: str) -> None:
        assert self.go_on.acquire(timeout=PATIENCE_S)
        self.done.append(caller)

    async def asked(self, caller: str, times: int) -> list[asyncio.Task[None]]:
        with flowing(Flow(caller=caller)):
            tasks = [asyncio.create_task(off_loop(self.do, caller)) for _ in range(times)]
        await asyncio.sleep(0)
        return tasks


async def test_another_caller_need_not_wait_for_the_whole_line_of_a_greedy_one() -> None:
    works = Works()
    greedy = await works.asked("greedy", 60)
    (other,) = await works.asked("other", 1)
    works.go_on.release(4)
    await other
    assert works.done.count("greedy") <= 3
    works.go_on.release(60)
    await asyncio.wait(greedy)


async def test_work_of_callers_who_left_is_dropped() -> None:
    works = Works()
    leaving = await works.asked("leaving", 60)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    works.go_on.release(3)
    await off_loop(works.do, "other")
    # Only what had begun is done.
    assert works.done.count("leaving") <= 2


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


async def test_a_failure_leaves_nothing_in_memory() -> None:
    class Body: ...

    def fail(body: Body) -> None:
        raise LookupError("broken")

    body = Body()
    known = weakref.ref(body)
    gc.disable()
    try:
        with suppress(LookupError):
            await off_loop(fail, body)
        del body
        # The threads have forgotten the failed work once they have done other work.
        await asyncio.gather(*(off_loop(time.sleep, 0.01) for _ in range(4)))
        assert known() is None
    finally:
        gc.enable()
