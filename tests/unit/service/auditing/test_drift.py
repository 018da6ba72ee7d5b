"""Tests of drift: what replicas find, publish and merge. Statistics are in tests/statistics."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from app.core.conformal import merged
from app.core.errors import StoreUnavailableError
from app.core.monitoring import JudgedSpan, Ringing
from app.observability.telemetry import Telemetry
from app.service.auditing.drift import STREAMS, Drift, StreamFigures, stream_figures
from app.service.auditing.entries import written
from app.service.services import Services
from app.stores.memory import MemoryStore
from tests.serving import services_of
from tests.unit.service.auditing.judged import UNSURE, calibrate, judge


@asynccontextmanager
async def replicas(count: int, store: MemoryStore) -> AsyncIterator[list[Services]]:
    async with AsyncExitStack() as stack:
        yield [
            seeded(await stack.enter_async_context(services_of(store=store)), seed)
            for seed in range(count)
        ]


def seeded(services: Services, seed: int = 1, now: Callable[[], float] = lambda: 0.0) -> Services:
    """The services with known random numbers, so that a test never meets a false alarm."""
    telemetry = Telemetry.on_own_registry()
    drift = Drift(services.calibrations, services.store, telemetry, seed=seed, now=now)
    return replace(services, drift=drift)


async def test_traffic_like_the_labelled_pairs_raises_no_alarm_and_a_shift_does(
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


async def test_an_alarm_keeps_the_time_of_the_replica_that_noticed_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, time = MemoryStore(), 0.0
    async with AsyncExitStack() as stack:
        one, other = [
            seeded(await stack.enter_async_context(services_of(store=store)), seed, lambda: time)
            for seed in range(2)
        ]
        calibration = await calibrate(one)
        time = 50.0
        await judge(one, 300)
        assert (await one.drift.of(calibration))["uncertainty"].rang is None
        for judged_at, count in ((100.0, 5), (200.0, 600)):
            time = judged_at
            await judge(other, count, width=UNSURE, seed=3)
            await other.drift.of(await other.calibrations.get("default"))
        span = JudgedSpan(first_judged_at=100.0, last_judged_at=200.0)
        rang = Ringing(at=200.0, version=1, span=span)
        # The other replica sees it later, and more judgments change nothing.
        time = 300.0
        await judge(other, 100, width=UNSURE, seed=4)
        for services in (one, other):
            found = await services.drift.of(calibration)
            assert found["uncertainty"].rang == rang
    (line, _) = [each for each in caplog.messages if "from the uncertainty" in each]
    assert line.startswith("drift alarm: ")
    assert f"since {written(200.0)}" in line
    assert f"from {written(100.0)} to {written(200.0)}" in line
    async with replicas(1, store) as (again,):
        found = await again.drift.of(await again.calibrations.get("default"))
        assert found["uncertainty"].rang == rang


async def test_an_alarm_of_an_earlier_release_has_no_time() -> None:
    store = MemoryStore()
    async with replicas(1, store) as (services,):
        calibration = await calibrate(services)
        await judge(services, 600, width=UNSURE, seed=3)
        await services.drift.of(calibration)
    ((place, text),) = await entries(store)
    fields = json.loads(text)
    assert set(fields.pop("rang")) >= {"uncertainty"}
    await store.put_evidence("default", place, json.dumps(fields))
    async with replicas(1, store) as (again,):
        calibration = await again.calibrations.get("default")
        await judge(again, 20)
        found = (await again.drift.of(calibration))["uncertainty"]
        assert (found.alarm, found.rang) == (True, None)


async def test_a_reader_who_leaves_takes_no_judgment_away() -> None:
    evidence = []
    for leaves in (False, True):
        async with replicas(1, MemoryStore()) as (services,):
            calibration = await calibrate(services)
            await judge(services, 500, width=UNSURE)
            if leaves:
                reader = asyncio.create_task(services.drift.of(calibration))
                # It now waits for the thread that tests the judgments.
                await asyncio.sleep(0)
                reader.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reader
            evidence.append(await services.drift.of(calibration))
    assert evidence[0] == evidence[1]
    assert evidence[0]["uncertainty"].alarm


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


async def test_all_replicas_see_the_same_merged_evidence_also_after_a_restart() -> None:
    store = MemoryStore()
    async with replicas(2, store) as (one, other):
        calibration = await calibrate(one)
        await judge(one, 300)
        await judge(other, 600, width=UNSURE, seed=3)
        for services in (one, other, one):
            await services.drift.of(await services.calibrations.get("default"))
        seen = [each.drift.known(calibration) for each in (one, other)]
        assert seen[0] == seen[1]
        assert seen[0]["uncertainty"].alarm
        stored = {place: json.loads(each) for place, each in await entries(store)}
        assert set(stored) == {"1", "2"}
        for stream in STREAMS:
            largest = [stored[place]["largest"][stream] for place in ("1", "2")]
            assert seen[0][stream].evidence == merged(largest, streams=3)
    async with replicas(1, store) as (again,):
        # Without a judgment it only reads; its first judgments make it one replica more.
        calibration = await again.calibrations.get("default")
        assert await again.drift.of(calibration) == seen[0]
        assert len(await entries(store)) == 2
        await judge(again, 50)
        assert (await again.drift.of(calibration))["uncertainty"].alarm
        assert [place for place, _ in await entries(store)] == ["1", "2", "3"]


async def entries(store: MemoryStore) -> list[tuple[str, str]]:
    return sorted((await store.evidence("default")).items())


async def test_the_entries_of_earlier_versions_are_overwritten() -> None:
    store = MemoryStore()
    for seed in range(3):
        async with replicas(2, store) as both:
            await calibrate(both[0], n=100, seed=seed)
            for services in both:
                await judge(services, 30)
                await services.drift.of(await services.calibrations.get("default"))
    write_ids = {json.loads(text)["write_id"] for _, text in await entries(store)}
    assert (len(await entries(store)), len(write_ids)) == (2, 1)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"largest": {}}', '{"largest": {"x": "1"}}'])
async def test_an_entry_of_another_program_is_overwritten(text: str) -> None:
    store = MemoryStore()
    await store.put_evidence("default", "1", text)
    async with replicas(1, store) as (services,):
        calibration = await calibrate(services)
        await judge(services, 20)
        await services.drift.of(calibration)
        ((place, written),) = await entries(store)
        assert (place, json.loads(written)["write_id"]) == ("1", calibration.write_id)


async def test_a_replica_whose_place_was_taken_takes_another_one() -> None:
    store = MemoryStore()
    async with replicas(1, store) as (services,):
        calibration = await calibrate(services)
        await judge(services, 60)
        await services.drift.of(calibration)
        # Another replica had read before this one wrote, and so took the same place.
        ((_, text),) = await entries(store)
        await store.put_evidence("default", "1", json.dumps(json.loads(text) | {"replica": "b"}))
        await services.drift.of(calibration)
        found = {place: json.loads(text)["replica"] for place, text in await entries(store)}
        assert found["1"] == "b"
        assert set(found) == {"1", "2"}


class ReadOnlyStore(MemoryStore):
    """A store on a full disk: it answers, and takes no evidence."""

    async def put_evidence(self, name: str, replica: str, text: str) -> None:
        raise StoreUnavailableError("the disk is full")


async def test_evidence_is_shown_although_the_store_takes_none() -> None:
    async with replicas(1, ReadOnlyStore()) as (services,):
        calibration = await calibrate(services)
        await judge(services, 600, width=UNSURE)
        assert (await services.drift.of(calibration))["uncertainty"].alarm


async def test_a_set_that_nobody_judged_by_has_no_evidence() -> None:
    async with replicas(1, MemoryStore()) as (services,):
        calibration = await calibrate(services)
        found = await services.drift.of(calibration)
        assert found == dict.fromkeys(STREAMS, StreamFigures(evidence=0.0, alarm=False))
        assert await services.store.evidence("default") == {}


def test_a_replica_keeps_its_place_although_an_earlier_one_is_unknown() -> None:
    # Place 3 has a share of 1 / 12 of the false alarms of one stream, and place 1 a half.
    of_all = len(STREAMS)
    assert stream_figures({1: 120.0}).evidence == pytest.approx(120.0 / 2 / of_all)
    assert stream_figures({3: 120.0}).evidence == pytest.approx(120.0 / 12 / of_all)
    assert stream_figures({1: 0.0, 3: 120.0}) == stream_figures({3: 120.0})
    assert stream_figures({}).evidence == 0.0
