"""Old draws are folded into counts, and no figure of the version in force depends on it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from app.core.calibration import Calibration
from app.core.errors import AuditsIncompleteError, StoreUnavailableError
from app.observability.telemetry import Telemetry
from app.ports import Store
from app.service.auditing import retention as retention_module
from app.service.auditing.absorption import Asked
from app.service.auditing.auditor import Auditor
from app.service.auditing.entries import AlarmEntry, AuditLabel, Draw, Entry, readable_entry
from app.service.auditing.figures import monitored
from app.service.auditing.ledger import Ledger
from app.service.auditing.retention import DAY_S, Retention
from app.service.services import Services
from app.stores.memory import MemoryStore
from tests.patience import until
from tests.serving import labelled as example
from tests.serving import services_of
from tests.unit.service.auditing import logs
from tests.unit.service.auditing.drawing import sent

KEEP_DAYS = 30.0
NOW = 100 * DAY_S


class Scene:
    """A set whose labels are absorbed, over a log that can be folded.

    Args:
        services: Services of the judge of the set.
        store: Their store.
    """

    def __init__(self, services: Services, store: Store) -> None:
        self.services = services
        self.store = store
        self.now = NOW
        self.auditor = self.replica()
        self.retention = self.folding(self.auditor)

    def replica(self) -> Auditor:
        return Auditor(
            self.store,
            Telemetry.on_own_registry(),
            fingerprint=self.fingerprint,
            rate=0.0,
            expires_s=logs.EXPIRES_S,
            now=lambda: self.now,
        )

    def folding(
        self,
        auditor: Auditor,
        *,
        keep_days: float | None = KEEP_DAYS,
        fingerprint: str | None = None,
    ) -> Retention:
        return Retention(
            auditor,
            self.services.calibrations,
            self.store,
            fingerprint=fingerprint or self.fingerprint,
            keep_days=keep_days,
            now=lambda: self.now,
        )

    @property
    def fingerprint(self) -> str:
        return self.services.identity.fingerprint

    async def calibrated(self, name: str = "default", *, number: int = 1000) -> Calibration:
        """Makes the next version of a set."""
        report = await self.services.calibrator.add(name, [example(1.0, "A", number=number)])
        return report.calibration

    def drawn(self, number: int, version: Calibration, **changes: Any) -> Draw:
        """Returns a draw by a version, at this time in seconds."""
        return logs.drawn(
            number,
            calibration=version.name,
            write_id=version.write_id,
            version=version.version,
            fingerprint=self.fingerprint,
            **changes,
        )

    async def append(self, *entries: Entry) -> None:
        await self.store.append_audits([each.text for each in entries])
        await self.auditor.catch_up()

    async def absorb(self, **asked: Any) -> Calibration:
        """Absorbs the audits of all times; returns the new version."""
        asking = Asked(leave_out=True, even_if_infeasible=True, even_if_unsafe=True, **asked)
        report = await self.services.absorber.absorb("default", asking, by="ana")
        return report.change.batch.calibration

    async def log(self) -> list[Entry]:
        """Returns the entries of the log."""
        texts = [text for _, text in await self.store.audits(after=0, limit=10**6)]
        entries = [readable_entry(text) for text in texts]
        return [entry for entry in entries if entry is not None]

    async def drawn_ids(self) -> list[str]:
        return [entry.id for entry in await self.log() if isinstance(entry, Draw)]


@asynccontextmanager
async def scene(store: Store | None = None) -> AsyncIterator[Scene]:
    store = store or MemoryStore()
    async with services_of(store=store) as services:
        yield Scene(services, store)


def figures(ledger: Ledger, version: Calibration) -> Any:
    """Returns the figures of the version in force, as people see them."""
    return monitored(
        ledger.uses(version.name, version.write_id),
        states=ledger.alarms.states(version.name),
        now=NOW,
        expires_s=logs.EXPIRES_S,
    )


def shown(ledger: Ledger) -> Any:
    """Everything that a ledger tells of audits and folds."""
    return (
        list(ledger.audits()),
        list(
            ledger.page(
                calibration=None,
                status=None,
                after=0,
                limit=10**6,
                may_use=lambda _: True,
                now=NOW,
            ).audits
        ),
        ledger.trail("default", before=None, limit=10**6),
        ledger.folds.counts("default"),
        ledger.folds.until("default"),
        ledger.position,
    )


def ids(numbers: Collection[int]) -> list[str]:
    return [logs.draw_id(number) for number in numbers]


def odd_log(scene: Scene, old: Calibration, rng: np.random.Generator) -> list[Entry]:
    """Draws by an old version, some repeated, with labels of all kinds."""
    entries = list[Entry]()
    sides: Sequence[AuditLabel] = ("A", "B", "tie")
    for number in range(1, 401):
        gap = float(rng.normal(0.0, 3.0))
        fields = {
            "gap_fwd": gap,
            "gap_rev": gap / 2,
            "accepted": bool(rng.random() < 0.7),
            "by": str(rng.choice(["kim", "bob", "zoe"])),
        }
        draw = scene.drawn(number, old, **fields)
        entries.append(draw)
        if rng.random() < 0.2:
            # Another criterion, or the same one by a replica that raced.
            entries.append(scene.drawn(number, old, criterion=logs.PAC, **fields))
            entries.append(draw)
        if rng.random() < 0.6:
            side = sides[int(rng.integers(3))]
            entries += [logs.labelled(number, side, at=number + 1.0)] * int(rng.integers(1, 3))
        if rng.random() < 0.05:
            entries.append(logs.labelled(number, "none", at=number + 2.0))
        if rng.random() < 0.05:
            entries.append(logs.labelled(number, "B", at=number + 3.0))
    return entries


@pytest.mark.parametrize("seed", range(3))
async def test_the_version_in_force_has_the_same_figures_before_and_after_a_fold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*odd_log(world, old, rng))
        current = await world.absorb()
        alarm = AlarmEntry(
            decider=world.drawn(1, old).decider,
            errors=9,
            audited=9,
            suspends=False,
            after=0,
            by="ana",
            at=500.0,
        )
        late = [
            world.drawn(
                # Comparisons that the old version has judged, and new ones.
                number,
                current,
                at=500.0 + number,
                gap_fwd=float(rng.normal(0.0, 3.0)),
                by=str(rng.choice(["zoe", "bob", "kim"])),
            )
            for number in (*range(1, 40), *range(1000, 1200))
        ]
        labels = [
            logs.labelled(number, "A" if rng.random() < 0.8 else "B", at=1300.0)
            for number in range(1000, 1150)
        ]
        await world.append(alarm, *late, *labels)
        follower = world.replica()
        await follower.open()
        before = figures(world.auditor.ledger, current)
        trail = world.auditor.ledger.trail("default", before=None, limit=10**6)
        assert before == figures(follower.ledger, current)
        assert before[0][0].figures.audited > 0
        log = len(await world.log())

        assert await world.retention.run() > 200
        assert len(await world.log()) < log / 2
        await follower.catch_up()
        fresh = world.replica()
        await fresh.open()
        for auditor in (world.auditor, follower, fresh):
            assert figures(auditor.ledger, current) == before
            assert auditor.ledger.trail("default", before=None, limit=10**6) == trail
            assert shown(auditor.ledger) == shown(fresh.ledger)
        # All that is old is folded: there is nothing left to do.
        assert await world.retention.run() == 0


@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_each_judgment_is_counted_once_by_version_and_criterion(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "STEP_ENTRIES", step)
    async with scene() as world:
        old = await world.calibrated()
        draws = [
            world.drawn(1, old),
            world.drawn(2, old),
            world.drawn(3, old),
            world.drawn(4, old),
            world.drawn(5, old, accepted=False),
            world.drawn(5, old, criterion=logs.PAC),
        ]
        labels = [logs.labelled(1, "A"), logs.labelled(2, "B"), logs.labelled(3, "tie")]
        await world.append(*draws, draws[0], *labels, logs.labelled(1, "A"))
        current = await world.absorb()
        await world.append(world.drawn(9, current, at=50.0))
        assert await world.retention.run() == 6
        marginal, pac = world.auditor.ledger.folds.counts("default")
        assert marginal.decider == draws[0].decider
        assert (marginal.right, marginal.wrong, marginal.ties) == (1, 1, 1)
        assert (marginal.unlabelled, marginal.abstained, marginal.draws) == (1, 1, 5)
        assert (marginal.first_at, marginal.last_at) == (1.0, 5.0)
        assert (pac.decider, pac.draws, pac.unlabelled) == (draws[5].decider, 1, 1)
        assert await world.drawn_ids() == ids([9])


async def test_what_is_young_in_force_closed_changed_or_newest_stays() -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(
            *(world.drawn(number, old) for number in range(1, 8)),
            logs.labelled(2, "none"),
            logs.labelled(3, "B"),
            logs.labelled(3, "A"),
        )
        current = await world.absorb()
        young = NOW - KEEP_DAYS * DAY_S
        await world.append(
            # Judged again, by an old version when it was younger, and by the one in force.
            world.drawn(4, old, criterion=logs.PAC, at=young),
            world.drawn(5, current, at=100.0),
            # After the first draw of the version in force.
            world.drawn(8, old, at=101.0),
            world.drawn(6, old, criterion=logs.PAC, at=99.0),
        )
        await world.retention.run()
        assert set(await world.drawn_ids()) == set(ids([2, 3, 4, 5, 8]))
        assert world.auditor.ledger.folds.until("default") == 7.0


async def test_the_newest_draw_stays_for_the_check_of_the_secret() -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 5)))
        await world.calibrated(number=1001)
        await world.retention.run()
        assert await world.drawn_ids() == ids([4])


async def test_labels_that_nobody_absorbs_hold_their_whole_period_up_and_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(
            *(world.drawn(number, old) for number in range(1, 10)),
            logs.labelled(2, "tie"),
            logs.labelled(4, "A"),
            logs.labelled(6, "B"),
        )
        await world.calibrated(number=1001)
        await world.retention.run()
        assert await world.drawn_ids() == ids(range(4, 10))
        held = (await world.retention.of("default")).held
        assert held is not None
        assert (held.labels, held.id, held.at) == (2, logs.draw_id(4), 4.0)
        assert world.retention.held("default") == held
        assert caplog.text.count(logs.draw_id(4)) == 1
        # The rest of a period can be absorbed, but not together with its folded part.
        for since in (None, 3.0):
            with pytest.raises(AuditsIncompleteError, match="were folded"):
                await world.absorb(since=since)
        absorbed = await world.absorb(since=3.5)
        assert absorbed.n == 4
        await world.retention.run()
        assert await world.drawn_ids() == ids([9])
        assert (await world.retention.of("default")).held is None
        assert world.retention.held("default") is None


async def test_a_label_that_was_changed_after_it_was_absorbed_waits_again() -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(
            *(world.drawn(number, old) for number in range(1, 6)), logs.labelled(2, "A")
        )
        await world.absorb()
        await world.append(logs.labelled(2, "B"))
        await world.retention.run()
        assert await world.drawn_ids() == ids(range(2, 6))
        await world.absorb(since=1.5)
        await world.retention.run()
        assert await world.drawn_ids() == ids([2, 5])


async def test_a_rollback_that_takes_labels_out_of_the_set_holds_them() -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(
            *(world.drawn(number, old) for number in range(1, 6)), logs.labelled(2, "A")
        )
        await world.absorb()
        await world.services.calibrator.rollback("default", old.version)
        await world.retention.run()
        assert await world.drawn_ids() == ids(range(2, 6))


async def test_a_deleted_set_is_folded_but_neither_a_lost_one_nor_that_of_another_judge() -> None:
    async with scene() as world:
        versions = [await world.calibrated(name) for name in ("deleted", "lost", "other")]
        numbers = iter(range(1, 100))
        for version in versions:
            await world.append(*(world.drawn(next(numbers), version) for _ in range(3)))
        await world.append(world.drawn(50, versions[0]))
        await world.services.calibrator.delete("deleted")
        await world.calibrated("other", number=1001)
        assert isinstance(world.store, MemoryStore)
        del world.store._sets["lost"]
        await world.folding(world.auditor, fingerprint="another judge").run()
        assert await world.drawn_ids() == ids([*range(4, 10), 50])


async def test_two_replicas_that_fold_at_once_count_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention_module, "STEP_ENTRIES", 7)
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 302)))
        await world.calibrated(number=1001)
        others = [world.folding(world.replica()) for _ in range(2)]
        folded = await asyncio.gather(*(each.run() for each in (world.retention, *others)))
        assert sum(folded) == 300
        assert await world.drawn_ids() == ids([301])
        fresh = world.replica()
        await fresh.open()
        (count,) = fresh.ledger.folds.counts("default")
        assert count.draws == 300


class BusyStore(MemoryStore):
    """A store in which others append just before the first fold."""

    entries: Sequence[Entry] = ()

    async def fold_audits(
        self, positions: Sequence[tuple[int, int]], summary: str, *, last: tuple[int, str]
    ) -> bool:
        entries, self.entries = self.entries, ()
        if entries:
            await self.append_audits([each.text for each in entries])
        return await super().fold_audits(positions, summary, last=last)


async def test_draws_that_change_while_a_fold_is_planned_stay() -> None:
    async with scene(BusyStore()) as world:
        old = await world.calibrated()
        await world.append(
            *(world.drawn(number, old) for number in range(1, 6)), logs.labelled(2, "A")
        )
        current = await world.absorb()
        assert isinstance(world.store, BusyStore)
        world.store.entries = (logs.labelled(2, "B"), world.drawn(3, current, at=NOW))
        await world.retention.run()
        assert set(await world.drawn_ids()) == set(ids([2, 3, 5]))
        assert logs.audit_of(world.auditor.ledger, 2).label == "B"


async def test_a_log_that_never_stands_still_is_folded_later() -> None:
    class Restless(BusyStore):
        async def fold_audits(self, *arguments: Any, **named: Any) -> bool:
            self.entries = (logs.labelled(77, "A"),)
            return await super().fold_audits(*arguments, **named)

    async with scene(Restless()) as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 4)))
        await world.calibrated(number=1001)
        assert await world.retention.run() == 0
        assert await world.drawn_ids() == ids([1, 2, 3])


@pytest.mark.parametrize("last", [3, 6, 7])
async def test_a_replica_that_sleeps_through_a_fold_reads_on(
    last: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene() as world:
        old = await world.calibrated()
        sleeper = world.replica()
        entries: list[Entry] = [
            *(world.drawn(number, old) for number in range(1, 5)),
            world.drawn(99, old, at=NOW),
            logs.labelled(1, "tie"),
            logs.labelled(99, "A", at=NOW),
        ]
        await world.append(*entries[:last])
        await sleeper.open()
        await world.append(*entries[last:])
        current = await world.absorb(since=50.0)
        await world.retention.run()
        assert await world.drawn_ids() == ids([99])
        await world.append(world.drawn(2, current, at=NOW))
        await sleeper.catch_up()
        assert shown(sleeper.ledger) == shown(world.auditor.ledger)
        assert "another log" not in caplog.text
        # Only one whose last entry is gone has to read all.
        assert ("was folded" in caplog.text) == (last in (3, 6))


async def test_another_log_with_a_gap_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 6)))
        other = MemoryStore()
        await other.append_audits([logs.drawn(number).text for number in range(11, 19)])
        assert await other.fold_audits([(4, 6)], "{}", last=(8, logs.drawn(18).text))
        world.auditor._store = other
        await world.auditor.catch_up()
        drawn = [audit.draw.id for audit in world.auditor.ledger.audits()]
        assert drawn == ids([11, 12, 13, 17, 18])


async def test_a_folded_draw_is_unknown_and_can_be_drawn_again() -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 4)))
        current = await world.calibrated(number=1001)
        await world.retention.run()
        report = await world.auditor.label(
            [sent(logs.draw_id(1), "A")], by="ana", may_use=lambda _: True
        )
        assert report.unknown == (logs.draw_id(1),)
        await world.append(world.drawn(1, current, at=NOW), logs.labelled(1, "B", at=NOW))
        fresh = world.replica()
        await fresh.open()
        assert shown(fresh.ledger) == shown(world.auditor.ledger)
        assert logs.audit_of(fresh.ledger, 1).label == "B"


async def test_a_running_replica_frees_the_rows_of_folded_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.service.auditing.ledger._FEW_FOLDED", 10)
    monkeypatch.setattr("app.service.auditing.auditor._FOLLOW_S", 0.001)
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 100)))
        await world.calibrated(number=1001)
        await world.retention.run()
        ledger = world.auditor.ledger
        assert len(ledger) == 1
        before = shown(ledger)
        following = asyncio.create_task(world.auditor.follow())
        await until(lambda: world.auditor.ledger is not ledger)
        following.cancel()
        assert shown(world.auditor.ledger) == before
        assert not world.auditor.ledger.is_mostly_folded


async def test_nothing_is_folded_unless_days_are_set() -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 4)))
        await world.calibrated(number=1001)
        keeping = world.folding(world.auditor, keep_days=None)
        assert await keeping.run() == 0
        await asyncio.wait_for(keeping.follow(), timeout=1.0)
        assert len(await world.drawn_ids()) == 3


async def test_a_store_that_fails_is_folded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as world:
        old = await world.calibrated()
        await world.append(*(world.drawn(number, old) for number in range(1, 4)))
        await world.calibrated(number=1001)

        async def full(*_: Any, **__: Any) -> bool:
            raise StoreUnavailableError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(world.store, "fold_audits", full)
            with pytest.raises(StoreUnavailableError):
                await world.retention.run()
        assert len(await world.drawn_ids()) == 3
        assert await world.retention.run() == 2
