"""The auditor draws at random, and the same comparisons on every replica."""

import time
from pathlib import Path

import pytest

from app.stores.memory import MemoryStore
from app.stores.sqlite import SqliteStore
from tests.serving import pair, request, services_of
from tests.unit.audits.drawing import EXAMPLES, FlakyStore, audits, ids, judged, label, traffic


async def test_rate_one_draws_every_judgment_that_used_an_alpha() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        drawn = await judged(services, traffic(range(20)))
        assert all(audit is not None and audit.rate == 1.0 for audit in drawn)
        assert await judged(services, traffic(range(20, 30)), alpha=None) == [None] * 10
        # Labeled examples are no fresh traffic.
        assert await judged(services, [each.comparison for each in EXAMPLES]) == [None] * 40
        assert [audit.id for audit in audits(services.auditor)] == [
            audit.id for audit in drawn if audit
        ]


async def test_a_draw_has_the_measurements_of_its_judgment() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        before = time.time()
        asked = request(pair(2.5, 1.0), alpha=0.15, guarantee="pac", delta=0.05)
        judgment = (await services.judge.judge(asked)).judgment
        calibration = await services.calibrations.get("default")
        (audit,) = audits(services.auditor)
        use = audit.uses[0]
        assert use.criterion == asked[1]
        assert (use.write_id, use.version) == (calibration.write_id, calibration.version)
        assert use.accepted == (judgment.verdict != "abstain")
        assert before <= use.at <= time.time()
        assert (audit.score.gap_fwd, audit.score.gap_rev) == pytest.approx((1.5, 1.5))
        assert audit.score.label_mass == judgment.label_mass
        assert audit.fingerprint == services.identity.fingerprint


async def test_the_share_of_drawn_comparisons_is_the_rate_and_a_higher_rate_keeps_them() -> None:
    store = MemoryStore()
    found: dict[float, list[bool]] = {}
    for rate in (0.05, 0.3):
        async with services_of(store=store, audit_rate=rate) as services:
            await services.calibrator.add("default", EXAMPLES)
            drawn = await judged(services, traffic(range(3000)))
            found[rate] = [audit is not None for audit in drawn]
            # The 3,000 draws of a binomial distribution; 5 standard deviations.
            spread = 5 * (3000 * rate * (1 - rate)) ** 0.5
            assert abs(sum(found[rate]) - 3000 * rate) < spread
    assert all(high for low, high in zip(found[0.05], found[0.3], strict=True) if low)
    await store.close()


async def test_replicas_of_one_store_draw_the_same_and_other_stores_draw_others() -> None:
    store = MemoryStore()
    found = []
    for own in (store, store, MemoryStore()):
        async with services_of(store=own, audit_rate=0.5) as services:
            await services.calibrator.add("default", EXAMPLES)
            found.append(await judged(services, traffic(range(100))))
    first, second, elsewhere = found
    assert first == second
    assert first != elsewhere
    assert sum(a is not None for a in first) > 20


async def test_a_comparison_that_comes_again_is_drawn_once() -> None:
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        (one,) = traffic([1])
        first = await ids(services, [one, one, one])
        assert len(set(first)) == 1
        assert await ids(services, [one]) == first[:1]
        assert (await store.audit_states())["default"].rows == 1
        assert store.appends == 1
        # Another criterion is another use of the same draw.
        (other,) = await judged(services, [one], alpha=0.2)
        assert other is not None
        assert other.id == first[0]
        assert store.appends == 2
        assert len(audits(services.auditor)) == 1


async def test_an_expired_draw_is_not_offered_for_a_label_again() -> None:
    # The clock of the service does not move, so the draw is made long ago.
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0, audit_expires_s=1e-9) as services:
        await services.calibrator.add("default", EXAMPLES)
        assert await judged(services, traffic([1])) == [None]
        assert len(audits(services.auditor)) == 1


async def test_draws_do_not_wait_for_the_disk_and_labels_do(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "calibrations.db")
    synced = list[bool]()
    waits = True

    def follow(statement: str) -> None:
        nonlocal waits
        if statement.startswith("PRAGMA synchronous"):
            waits = statement.endswith("FULL")
        elif statement == "COMMIT":
            synced.append(waits)

    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        await store._run(lambda connection: connection.set_trace_callback(follow))
        (one,) = await ids(services, traffic([1]))
        await label(services.auditor, (one, "A"))
        await store._run(lambda connection: connection.set_trace_callback(None))
    assert synced == [False, True]
