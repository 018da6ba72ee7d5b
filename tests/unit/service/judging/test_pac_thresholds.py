"""Tests that each "pac" threshold is computed once, and that a bounded number can wait."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import Criterion, Guarantee
from app.core.errors import OverloadedError
from app.service.judging.pac_thresholds import Found, PacThresholds


class SlowCalibration(Calibration):
    """Computes a threshold when a test lets it, and counts the computations."""

    go_on = threading.Event()
    computed: list[tuple[float, float | None]]

    def threshold(self, alpha: float, guarantee: Guarantee, delta: float | None) -> float:
        assert self.go_on.wait(30)
        self.computed.append((alpha, delta))
        return super().threshold(alpha, guarantee, delta)


def calibration(write_id: str = "w") -> SlowCalibration:
    examples = {str(i): LabelledScore(i / 100, i / 100, 1.0, "A") for i in range(200)}
    made = SlowCalibration("default", write_id, 1, "judge", "f", 0.0, examples)
    object.__setattr__(made, "computed", [])
    return made


@pytest.fixture(autouse=True)
def go_on() -> Iterator[threading.Event]:
    SlowCalibration.go_on.clear()
    yield SlowCalibration.go_on
    SlowCalibration.go_on.set()


@pytest.fixture
async def thresholds() -> AsyncIterator[PacThresholds]:
    made = PacThresholds(max_waiting=4)
    yield made
    SlowCalibration.go_on.set()
    made.close()


def pac(alpha: float, delta: float = 0.1) -> Criterion:
    return Criterion(alpha, "pac", delta, "default")


async def run_until_waiting(*tasks: asyncio.Task[dict[Criterion, Found]]) -> None:
    """Lets each task run until it waits."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


@pytest.mark.anyio
async def test_concurrent_callers_share_one_computation(
    thresholds: PacThresholds, go_on: threading.Event
) -> None:
    known = calibration()
    # The second alpha rounds to the same value.
    asked = [pac(0.2), pac(0.20004), pac(0.2)]
    tasks = [asyncio.create_task(thresholds.find([(each, known)])) for each in asked]
    await run_until_waiting(*tasks)
    go_on.set()
    found = [next(iter((await task).values())) for task in tasks]
    assert known.computed == [(0.2, 0.1)]
    assert found == [known.threshold(0.2, "pac", 0.1)] * 3
    # The threshold is kept, so a later call computes nothing.
    go_on.clear()
    assert await thresholds.find([(pac(0.2), known)]) == {pac(0.2): found[0]}


@pytest.mark.anyio
async def test_a_cancelled_caller_does_not_cancel_the_computation_of_others(
    thresholds: PacThresholds, go_on: threading.Event
) -> None:
    known = calibration()
    leaving, staying = (asyncio.create_task(thresholds.find([(pac(0.2), known)])) for _ in range(2))
    await run_until_waiting(leaving, staying)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    go_on.set()
    assert pac(0.2) in await staying
    assert known.computed == [(0.2, 0.1)]


@pytest.mark.anyio
async def test_another_version_is_computed_separately(
    thresholds: PacThresholds, go_on: threading.Event
) -> None:
    old, new = calibration("old"), calibration("new")
    tasks = [asyncio.create_task(thresholds.find([(pac(0.2), each)])) for each in (old, new)]
    await run_until_waiting(*tasks)
    go_on.set()
    await asyncio.gather(*tasks)
    assert old.computed == new.computed == [(0.2, 0.1)]


@pytest.mark.anyio
async def test_too_many_thresholds_are_refused_and_none_is_started(
    thresholds: PacThresholds, go_on: threading.Event
) -> None:
    known = calibration()
    waiting = asyncio.create_task(
        thresholds.find([(pac(alpha), known) for alpha in (0.1, 0.2, 0.3)])
    )
    await run_until_waiting(waiting)
    with pytest.raises(OverloadedError) as refused:
        await thresholds.find([(pac(alpha), known) for alpha in (0.4, 0.5)])
    assert refused.value.retry_after_s >= 1
    # A call for one threshold in computation and one new one is accepted.
    fitting = asyncio.create_task(thresholds.find([(pac(alpha), known) for alpha in (0.3, 0.6)]))
    await run_until_waiting(fitting)
    go_on.set()
    assert len(await waiting) == 3
    assert len(await fitting) == 2
    assert [alpha for alpha, _ in known.computed] == [0.1, 0.2, 0.3, 0.6]
    # New thresholds are accepted again.
    assert len(await thresholds.find([(pac(alpha), known) for alpha in (0.4, 0.5)])) == 2
