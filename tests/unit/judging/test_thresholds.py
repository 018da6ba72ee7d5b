"""Tests that thresholds of "pac" are computed in a thread, once, and by turns."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from app.core.calibration import Calibration
from app.core.comparison import Criterion, Guarantee
from app.fair_queue import Flow, flowing
from app.judging.judge import Threshold, find_thresholds
from tests.labeled_examples import labeled_example
from tests.patience import PATIENCE_S


class SlowCalibration(Calibration):
    """Computes thresholds as often as a test lets it, and records them."""

    go_on: threading.Semaphore
    computed: list[tuple[float, float | None]]

    def threshold(self, alpha: float, guarantee: Guarantee, delta: float | None) -> float:
        if self.kept_threshold(alpha, guarantee, delta) is None:
            assert self.go_on.acquire(timeout=PATIENCE_S)
            self.computed.append((alpha, delta))
        return super().threshold(alpha, guarantee, delta)


@pytest.fixture
def known() -> Iterator[SlowCalibration]:
    examples = {str(i): labeled_example(i / 100, i / 100, 1.0, "A") for i in range(200)}
    made = SlowCalibration(
        name="default",
        write_id="w",
        version=1,
        judge="judge",
        fingerprint="f",
        examples=examples,
    )
    object.__setattr__(made, "computed", [])
    object.__setattr__(made, "go_on", threading.Semaphore(0))
    yield made
    made.go_on.release(100)


def pac(alpha: float, delta: float = 0.1) -> Criterion:
    return Criterion(alpha=alpha, guarantee="pac", delta=delta, calibration="default")


async def of(caller: str, known: Calibration, *alphas: float) -> dict[Criterion, Threshold]:
    with flowing(Flow(caller=caller, kind="batch")):
        return await find_thresholds({pac(alpha): known for alpha in alphas})


async def waiting(*finding: asyncio.Task[dict[Criterion, Threshold]]) -> None:
    """Lets each task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(task.done() for task in finding)


async def test_a_threshold_is_kept_for_all_later_callers(known: SlowCalibration) -> None:
    known.go_on.release()
    found = (await of("a", known, 0.2))[pac(0.2)]
    # The second alpha rounds to the same value.
    assert await of("b", known, 0.2, 0.20004) == {pac(0.2): found, pac(0.20004): found}
    assert known.computed == [(0.2, 0.1)]


async def test_a_caller_with_many_new_thresholds_does_not_delay_another(
    known: SlowCalibration,
) -> None:
    alphas = [i / 100 for i in range(10, 40)]
    greedy = [asyncio.create_task(of("greedy", known, *alphas[i::3])) for i in range(3)]
    await waiting(*greedy)
    other = asyncio.create_task(of("other", known, 0.5))
    await waiting(other)
    # Two are in computation, and one may have the next turn already.
    known.go_on.release(4)
    assert pac(0.5) in await other
    assert len(known.computed) <= 4
    known.go_on.release(len(alphas))
    for each in greedy:
        await each


async def test_a_cancelled_caller_leaves_no_work_behind(known: SlowCalibration) -> None:
    leaving = [asyncio.create_task(of("a", known, 0.1 + i / 100, 0.9)) for i in range(20)]
    await waiting(*leaving)
    for each in leaving:
        each.cancel()
    await asyncio.wait(leaving)
    known.go_on.release(3)
    assert pac(0.5) in await of("b", known, 0.5)
    # The two that had begun, and the last.
    assert len(known.computed) <= 3
