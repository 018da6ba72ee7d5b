"""Tests of work in the shared threads: whose turn it is, errors, and callers who leave."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from app.fair_queue import CURRENT_FLOW, Flow, Kind, flowing
from app.off_loop import off_loop
from tests.patience import PATIENCE_S


class Works:
    """Pieces of work that end when a test lets them, in the order in which they began."""

    def __init__(self) -> None:
        self.go_on = threading.Semaphore(0)
        self.done: list[str] = []

    def do(self, name: str) -> str:
        assert self.go_on.acquire(timeout=PATIENCE_S)
        self.done.append(name)
        return name

    async def ask(self, caller: str, kind: Kind = "batch") -> str:
        with flowing(Flow(caller=caller, kind=kind)):
            return await off_loop(self.do, caller)

    async def asked(self, caller: str, times: int = 1) -> list[asyncio.Task[str]]:
        tasks = [asyncio.create_task(self.ask(caller)) for _ in range(times)]
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks


@pytest.fixture
def works() -> Iterator[Works]:
    made = Works()
    yield made
    made.go_on.release(1000)


async def test_another_caller_gets_the_next_thread(works: Works) -> None:
    greedy = await works.asked("greedy", 60)
    (other,) = await works.asked("other")
    # Both threads work for the greedy one; one of them turns to the other caller next.
    works.go_on.release(4)
    assert await other == "other"
    assert works.done.count("greedy") <= 3
    works.go_on.release(60)
    assert await asyncio.gather(*greedy) == ["greedy"] * 60


async def test_work_of_callers_who_left_is_dropped(works: Works) -> None:
    leaving = await works.asked("greedy", 60)
    for each in leaving:
        each.cancel()
    await asyncio.wait(leaving)
    works.go_on.release(3)
    assert await works.ask("other") == "other"
    # Only what had begun is done.
    assert works.done.count("greedy") <= 2


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
