"""Tests of drift: what a process finds. Statistics are in tests/statistics."""

from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from app.audits.drift import STREAMS, Drift
from app.audits.entries import written
from app.core.preference import preference_from_gaps
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.stores.memory import MemoryStore
from tests.serving import pair, request, services_of
from tests.unit.audits.judged import UNSURE, calibrate, judge


@asynccontextmanager
async def replicas(
    count: int, store: MemoryStore, *, share: int = 1
) -> AsyncIterator[list[Services]]:
    async with AsyncExitStack() as stack:
        yield [
            seeded(await stack.enter_async_context(services_of(store=store)), seed, share=share)
            for seed in range(count)
        ]


def seeded(
    services: Services, seed: int = 1, now: Callable[[], float] = lambda: 0.0, *, share: int = 1
) -> Services:
    """The services with known random numbers, so that a test never meets a false alarm."""
    telemetry = Telemetry.on_own_registry()
    drift = Drift(services.calibrations, telemetry, replicas=share, seed=seed, now=now)
    services.judge._observers = (drift, services.auditor)
    return replace(services, drift=drift)


async def test_traffic_like_the_labeled_pairs_raises_no_alarm_and_a_shift_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replicas(1, MemoryStore()) as (services,):
        calibration = await calibrate(services)
        await judge(services, 1000)
        found = await services.drift.of(calibration)
        assert set(found) == set(STREAMS)
        assert not any(each.alarm for each in found.values())
        assert all(0.0 < each.evidence < 20.0 for each in found.values())
        await judge(services, 500, width=UNSURE, seed=3)
        found = await services.drift.of(calibration)
        assert found["uncertainty"].alarm
        assert found["uncertainty"].evidence >= 20.0
        # The scripted judge gives all pairs the same label mass: chance breaks the ties.
        assert not found["label_mass"].alarm
        # An alarm is never taken back, and is logged once.
        await judge(services, 500, seed=4)
        assert (await services.drift.of(calibration))["uncertainty"].alarm
        assert caplog.text.count("from the uncertainty of its judgments") == 1


async def test_an_alarm_keeps_its_time(caplog: pytest.LogCaptureFixture) -> None:
    time = 0.0
    async with services_of(store=MemoryStore()) as made:
        services = seeded(made, 1, lambda: time)
        calibration = await calibrate(services)
        for judged_at, count in ((100.0, 5), (200.0, 600), (300.0, 100)):
            time = judged_at
            await judge(services, count, width=UNSURE, seed=int(judged_at))
            found = await services.drift.of(calibration)
        stream = found["uncertainty"]
        assert (stream.rang_version, stream.rang_at) == (1, written(200.0))
    (line,) = [each for each in caplog.messages if "from the uncertainty" in each]
    assert line.startswith("drift alarm: ")
    assert f"since {written(200.0)}" in line


async def test_a_new_version_of_the_set_begins_anew() -> None:
    async with replicas(1, MemoryStore()) as (services,):
        calibration = await calibrate(services)
        await judge(services, 600, width=UNSURE)
        assert (await services.drift.of(calibration))["uncertainty"].alarm
        calibration = await calibrate(services, n=20, seed=9)
        assert services.drift.known(calibration) == {}
        found = await services.drift.of(calibration)
        assert all(each.evidence == 0.0 for each in found.values())
        assert not any(each.alarm for each in found.values())
        # A look at it leaves the criteria of the last judgments in use.
        assert services.drift.criteria("default") == {request(pair(1.0, 0.0))[1]}


async def test_a_judgment_that_ends_after_a_change_of_the_set_takes_no_alarm_away() -> None:
    async with replicas(1, MemoryStore()) as (services,):
        await calibrate(services)
        late = await services.judge.judge(request(pair(1.0, 0.0)))
        calibration = await calibrate(services, n=20, seed=9)
        await judge(services, 600, width=UNSURE)
        assert (await services.drift.of(calibration))["uncertainty"].alarm
        await services.drift.observe([late])
        assert (await services.drift.of(calibration))["uncertainty"].alarm


async def test_sixteen_replicas_share_the_false_alarms_of_one() -> None:
    async with replicas(1, MemoryStore()) as (services,):
        calibration = await calibrate(services)
        await judge(services, 200, width=UNSURE, seed=3)
        alone = await services.drift.of(calibration)
    async with replicas(1, MemoryStore(), share=16) as (services,):
        calibration = await calibrate(services)
        await judge(services, 200, width=UNSURE, seed=3)
        shared = await services.drift.of(calibration)
    for stream in STREAMS:
        assert shared[stream].evidence == pytest.approx(alone[stream].evidence / 16)


def waiting(services: Services) -> int:
    """Number of judgments that wait for a test, which are then taken."""
    return len(taken(services)) // len(STREAMS)


def taken(services: Services) -> list[float]:
    """Takes the values that wait for a test."""
    state = services.drift._sets["default"]
    fresh, state.fresh = state.fresh, array("d")
    return fresh.tolist()


async def test_each_question_is_tested_once_by_its_first_comparison() -> None:
    async with services_of() as services:
        await calibrate(services)
        batch = services.judge.judge_batch
        one, other = (request(pair(1.0, 0.0, question=each)) for each in ("One?", "Other?"))
        same = request(pair(2.0, 0.5, question="One?"))
        await batch([one, same, other])
        assert waiting(services) == 2
        await batch([one, other])
        assert waiting(services) == 0
        # Another request about a question has pairs that resemble the first one.
        await batch([same])
        assert waiting(services) == 0
        await batch([request(pair(3.0, 0.0, question="Without?"), alpha=None)])
        assert waiting(services) == 0


async def test_the_tested_values_are_uncertainty_position_gap_and_label_mass() -> None:
    async with services_of() as services:
        calibration = await calibrate(services)
        (judgment,) = await judge(services, 1)
        values = taken(services)
        assert judgment.p_fwd is not None
        assert judgment.p_rev is not None
        gap = abs(judgment.p_fwd - judgment.p_rev)
        assert values == [judgment.uncertainty, gap, judgment.label_mass]
        # They are the same numbers as those of the labeled pairs.
        numbers = calibration.table.numbers
        found = preference_from_gaps(numbers[:, 0], numbers[:, 1])
        assert found.entropy.tolist() == calibration.uncertainty.tolist()


async def test_judgments_that_nobody_tests_take_a_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.audits.drift._MOST_FRESH", 50)
    async with services_of() as services:
        await calibrate(services)
        for _ in range(5):
            await judge(services, 30)
        assert waiting(services) == 50
        await judge(services, 30)
        assert waiting(services) == 30
