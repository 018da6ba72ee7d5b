"""Turns pass to the smallest number, none is lost, and the pace is measured."""

import asyncio

import pytest

from app.judges.engines.turns import Pace, Turns, run_all
from tests.patience import PATIENCE_S, Clock


async def test_the_smallest_number_is_next_and_equal_numbers_are_first_come_first_served() -> None:
    turns, order = Turns(), list[str]()

    async def take(number: int, name: str) -> None:
        async with turns.turn(number):
            order.append(name)
            await asyncio.sleep(0)

    async with turns.turn(0):
        waiting = [
            asyncio.create_task(take(number, name))
            for number, name in ((3, "c"), (1, "a"), (2, "b1"), (2, "b2"))
        ]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == ["a", "b1", "b2", "c"]


@pytest.mark.parametrize("steps", range(4))
async def test_a_waiter_that_is_cancelled_at_any_step_does_not_keep_the_turn(steps: int) -> None:
    turns, held = Turns(), asyncio.Event()

    async def hold() -> None:
        async with turns.turn(0):
            await held.wait()

    async def take() -> str:
        async with turns.turn(1):
            return "done"

    async def leave() -> None:
        async with turns.turn(0):
            await asyncio.sleep(0)

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    leaver, taker = asyncio.create_task(leave()), asyncio.create_task(take())
    await asyncio.sleep(0)
    held.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    leaver.cancel()
    assert await asyncio.wait_for(taker, PATIENCE_S) == "done"
    await asyncio.gather(holder, leaver, return_exceptions=True)
    assert await asyncio.wait_for(take(), PATIENCE_S) == "done"


def test_a_single_prompt_overtakes_only_later_prompts_of_a_batch() -> None:
    clock = Clock()
    pace = Pace(clock)
    with pace.call(100):
        for _ in range(100):
            clock.now += 0.25
            pace.note_done()
    assert pace.seconds_a_prompt == 0.25
    begun = clock.now
    with pace.call(1000) as batch:
        assert batch[0] == 1000 * begun
        # 400 prompts are done when the single call arrives: its turn is before the 401st.
        clock.now += 100.0
        with pace.call(2) as single:
            assert batch[399] < single[0] <= batch[400] < single[1] <= batch[401]
    # No call that arrives after a prompt's own turn overtakes the prompt.
    with pace.call(1) as later:
        assert later[0] == 1000 * (begun + 100.0) < batch[999]
    clock.now += 150.0
    with pace.call(1) as latest:
        assert latest[0] > batch[999]


def test_time_without_work_is_not_the_pace() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(10):
        clock.now += 3600.0
        with pace.call(2):
            clock.now += 0.5
            pace.note_done(2)
    assert pace.seconds_a_prompt == 0.25


def test_the_pace_follows_what_was_done_lately() -> None:
    clock = Clock()
    pace = Pace(clock)
    for seconds in (0.5, 0.125):
        with pace.call(40_000):
            for _ in range(40_000):
                clock.now += seconds
                pace.note_done()
    assert 0.125 <= pace.seconds_a_prompt < 0.126


async def test_a_cancellation_is_not_lost_in_a_failure_at_the_same_moment() -> None:
    begun = asyncio.Event()

    async def fails_when_cancelled() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("the connection broke") from None

    calling = asyncio.create_task(run_all([fails_when_cancelled()]))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_the_first_failure_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("the connection broke")

    with pytest.raises(ValueError, match="broke"):
        await run_all([fails(), asyncio.sleep(3600)])
