"""The auditor draws at random and the same everywhere, and its labels count exactly once."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import pytest

from app.core.comparison import AuditReference, Comparison, Judgment, Label
from app.core.errors import ForbiddenError, StoreUnavailableError
from app.ports import Store
from app.service.auditing.auditor import Auditor, AuditPage
from app.service.auditing.ledger import Draw
from app.service.services import Services
from app.stores.memory import MemoryStore
from app.telemetry import Telemetry
from tests.patience import PATIENCE_S
from tests.serving import labelled, pair, request, services_of

pytestmark = pytest.mark.anyio

EXAMPLES = [labelled(gap / 10, "A", number=gap) for gap in range(1, 41)]


class FlakyStore(MemoryStore):
    """A store that refuses or hangs on request, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Callable[[], None] | None = None
        self.hangs = False
        self.appends = 0

    async def append_audits(self, entries: Sequence[str], *, synced: bool = True) -> int:
        self.appends += 1
        await self._suffer()
        return await super().append_audits(entries, synced=synced)

    async def last_audit(self) -> int:
        await self._suffer()
        return await super().last_audit()

    async def _suffer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble:
            self.trouble()

    def refuse(self) -> None:
        raise StoreUnavailableError("refuses")


def traffic(numbers: Iterable[int], *, start: float = 0.05) -> list[Comparison]:
    """Distinct comparisons with small gaps of both signs."""
    return [
        pair(start + number % 7, 3.0, question=f"Traffic {number}?") for number in numbers
    ]  # fmt: skip


async def judged(
    services: Services, comparisons: Sequence[Comparison], **criterion: object
) -> list[AuditReference | None]:
    """Returns the audits of the judgments, in order."""
    asked = [request(each, **criterion) for each in comparisons]  # type: ignore[arg-type]
    outcomes = await services.judge.judge_batch(asked)
    assert all(isinstance(outcome, Judgment) for outcome in outcomes)
    return [outcome.audit for outcome in outcomes if isinstance(outcome, Judgment)]


async def ids(services: Services, comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the ids of judgments that were all drawn."""
    return [audit.id for audit in await judged(services, comparisons) if audit is not None]


async def label(
    auditor: Auditor, *labels: tuple[str, Label], by: str = "ana", sets: str | None = None
) -> tuple[int, int, int, int, int]:
    """Returns the numbers of labelled, updated, unchanged, unknown and expired ids."""
    report = await auditor.label(
        labels, by=by, may_use=lambda name: sets is None or name == sets
    )  # fmt: skip
    return (*report[:3], len(report.unknown), len(report.expired))


def draws(auditor: Auditor) -> list[Draw]:
    return list(auditor.ledger.draws())


def replica(store: Store, *, seconds_later: float = 0.0, expires_s: float = 1000.0) -> Auditor:
    """Another replica on the same store, whose clock goes ahead."""
    return Auditor(
        *(store, Telemetry.on_own_registry()),
        fingerprint="f" * 64,
        rate=0.0,
        expires_s=expires_s,
        now=lambda: time.time() + seconds_later,
    )


async def test_rate_one_draws_every_judgment_that_used_an_alpha() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await judged(services, traffic(range(20)))
        assert all(audit is not None and audit.rate == 1.0 for audit in found)
        assert await judged(services, traffic(range(20, 30)), alpha=None) == [None] * 10
        # Labelled examples are no fresh traffic.
        assert await judged(services, [each.comparison for each in EXAMPLES]) == [None] * 40
        assert [draw.id for draw in draws(services.auditor)] == [a.id for a in found if a]


async def test_a_draw_has_the_measurements_of_its_judgment() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES, label_noise=0.02)
        before = time.time()
        asked = request(pair(2.5, 1.0), alpha=0.15, guarantee="pac", delta=0.05)
        judgment = await services.judge.judge(asked)
        calibration = await services.calibrations.get("default")
        ((criterion, uses),) = services.auditor.ledger.uses(
            "default", calibration.write_id
        ).items()  # fmt: skip
        assert criterion == (0.15, "pac", 0.05)
        (use,) = uses
        assert (use.accepted, use.label_noise) == (judgment.verdict != "abstain", 0.02)
        assert before <= use.at <= time.time()
        draw = use.draw
        assert (draw.gap_fwd, draw.gap_rev) == pytest.approx((1.5, 1.5))
        assert draw.label_mass == judgment.label_mass
        assert draw.fingerprint == services.judge.fingerprint


async def test_no_text_reaches_the_log() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        secret = Comparison.of("Wer war es?", "quality=2.5 Der Gärtner", "quality=0.5 niemand")
        (identifier,) = await ids(services, [secret])
        await label(services.auditor, (identifier, "A"))
        log = str(await services.store.audits(after=0, limit=10))
        assert not any(word in log for word in ("Wer", "rtner", "niemand", "quality"))


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
        assert await store.last_audit() == 1
        assert store.appends == 1
        # Another criterion is another use of the same draw.
        (other,) = await judged(services, [one], alpha=0.2)
        assert other is not None
        assert other.id == first[0]
        assert await store.last_audit() == 2
        assert len(draws(services.auditor)) == 1


async def test_the_swapped_comparison_is_the_same_draw_with_mirrored_labels() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        (one,) = traffic([1])
        here, there = await ids(services, [one, one.swapped])
        assert (here[:-1], here != there) == (there[:-1], True)
        assert len(draws(services.auditor)) == 1
        assert await label(services.auditor, (here, "A")) == (1, 0, 0, 0, 0)
        assert await label(services.auditor, (there, "B")) == (0, 0, 1, 0, 0)
        assert await label(services.auditor, (there, "A")) == (0, 1, 0, 0, 0)
        assert await label(services.auditor, (here, "B")) == (0, 0, 1, 0, 0)


async def test_a_store_that_refuses_misses_draws_and_no_judgments() -> None:
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        store.trouble = store.refuse
        assert await judged(services, traffic(range(5))) == [None] * 5
        # Later judgments do not even ask the store that has failed.
        assert await judged(services, traffic(range(5, 8))) == [None] * 3
        assert store.appends == 1
        text = services.telemetry.exposition()[0].decode()
        assert "scope_audit_draws_missed_total 8.0" in text
        assert "scope_audit_draws_total 0.0" in text
        store.trouble = None
        await services.auditor.catch_up()
        assert None not in await judged(services, traffic(range(8)))
        text = services.telemetry.exposition()[0].decode()
        assert "scope_audit_draws_total 8.0" in text


async def test_a_store_that_hangs_holds_a_judgment_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.service.auditing.auditor._PATIENCE_S", 0.01)
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        store.hangs = True
        async with asyncio.timeout(PATIENCE_S):
            assert await judged(services, traffic(range(3))) == [None] * 3
            assert await judged(services, traffic(range(3, 6))) == [None] * 3
        assert store.appends == 1


async def test_following_applies_what_others_write_and_survives_an_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.service.auditing.auditor._FOLLOW_S", 0.001)
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        other = replica(store)
        following = asyncio.create_task(other.follow())
        await ids(services, traffic([1]))
        await until(lambda: len(draws(other)) == 1)
        store.trouble = store.refuse
        await until(lambda: "without draws" in caplog.text)
        store.trouble = None
        await until(lambda: "again" in caplog.text)
        await ids(services, traffic([2]))
        await until(lambda: len(draws(other)) == 2)
        following.cancel()
        assert caplog.text.count("without draws") == 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_rate_zero_writes_nothing() -> None:
    store = FlakyStore()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", EXAMPLES)
        assert await judged(services, traffic(range(50))) == [None] * 50
        assert store.appends == 0


async def test_labels_are_counted_by_their_effect() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two, three = await ids(services, traffic(range(3)))
        auditor = services.auditor
        assert await label(auditor, (one, "A"), (two, "tie"), ("0" * 32, "B")) == (2, 0, 0, 1, 0)
        assert await label(auditor, (one, "A"), (two, "B"), (three, "B")) == (1, 1, 1, 0, 0)
        assert [draw.label for draw in draws(auditor)] == ["A", "B", "B"]
        # Within a batch, the last label counts.
        assert await label(auditor, (one, "B"), (one, "tie"), (one, "tie")) == (0, 2, 1, 0, 0)
        assert draws(auditor)[0].label == "tie"
        assert await label(auditor, (one, "B"), (one, "tie")) == (0, 2, 0, 0, 0)
        assert draws(auditor)[0].label == "tie"


async def test_a_batch_sent_again_changes_nothing() -> None:
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        batch: list[tuple[str, Label]] = [(each, "A") for each in await ids(services, traffic([1]))]
        assert await label(services.auditor, *batch) == (1, 0, 0, 0, 0)
        end = await store.last_audit()
        assert await label(services.auditor, *batch) == (0, 0, 1, 0, 0)
        assert await store.last_audit() == end


async def test_a_draw_takes_its_first_label_in_time_and_corrections_for_ever() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        early, late = await ids(services, traffic([1, 2]))
        await label(services.auditor, (early, "A"))
        much_later = replica(store, seconds_later=5000.0)
        assert await label(much_later, (early, "B"), (late, "B")) == (0, 1, 0, 0, 1)
        assert [draw.label for draw in draws(much_later)] == ["B", None]
        report = await much_later.label([(late, "A")], by="ana", may_use=lambda _: True)
        assert report.expired == (late,)


async def test_an_expired_draw_is_not_offered_for_a_label_again() -> None:
    # The clock of the service does not move, so the draw is made long ago.
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0, audit_expires_s=1e-9) as services:
        await services.calibrator.add("default", EXAMPLES)
        assert await judged(services, traffic([1])) == [None]
        assert len(draws(services.auditor)) == 1


async def test_a_label_for_another_set_takes_none_of_the_labels() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        await services.calibrator.add("other", EXAMPLES)
        (here,) = await ids(services, traffic([1]))
        (there,) = await judged(services, traffic([1]), calibration="other")
        assert there is not None
        assert there.id != here
        with pytest.raises(ForbiddenError, match="'other'"):
            await label(services.auditor, (here, "A"), (there.id, "A"), sets="default")
        assert [draw.label for draw in draws(services.auditor)] == [None, None]
        assert await label(services.auditor, (here, "A"), sets="default") == (1, 0, 0, 0, 0)


async def test_labels_sent_at_once_to_several_replicas_count_exactly_once() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await ids(services, traffic(range(40)))
        batch: list[tuple[str, Label]] = [(each, "A") for each in found]
        replicas = [replica(store) for _ in range(4)]
        for each in replicas:
            await each.open()
        counts = await asyncio.gather(*(label(each, *batch) for each in replicas))
        assert sum(first for first, *_ in counts) == 40
        assert sum(unchanged for _, _, unchanged, _, _ in counts) == 120
        for each in replicas:
            await each.catch_up()
            assert draws(each) == draws(replicas[0])


async def test_a_restarted_replica_has_the_same_ledger() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await ids(services, traffic(range(1200)))
        await label(services.auditor, *((each, "B") for each in found[:700]))
        await services.auditor.catch_up()
        again = replica(store)
        await again.open()
        assert draws(again) == draws(services.auditor)
        assert again.ledger.position == services.auditor.ledger.position == 1900


@pytest.mark.parametrize("length", [0, 1, 3, 5])
async def test_another_log_in_the_store_is_noticed(length: int) -> None:
    store, restored = MemoryStore(), MemoryStore()
    for own, numbers in ((store, range(3)), (restored, range(10, 10 + length))):
        async with services_of(store=own, audit_rate=1.0) as services:
            await services.calibrator.add("default", EXAMPLES)
            await ids(services, traffic(numbers))
    follower = replica(store)
    await follower.open()
    assert len(draws(follower)) == 3
    store._audits = restored._audits
    store._audits.append('{"kind": "later"}')
    await follower.catch_up()
    assert len(draws(follower)) == length
    assert follower.ledger.position == length + 1


async def test_the_secret_of_another_log_draws_from_then_on() -> None:
    found = []
    restored = MemoryStore()
    store = MemoryStore()
    for own in (restored, store):
        async with services_of(store=own, audit_rate=0.5) as services:
            await services.calibrator.add("default", EXAMPLES)
            await judged(services, traffic(range(20)))
            if own is store:
                store._audits, store._secret = restored._audits[:2], restored._secret
                await services.auditor.catch_up()
            found.append(await judged(services, traffic(range(100, 200))))
    assert found[0] == found[1]


async def test_pages_hold_each_draw_once_oldest_first() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await ids(services, traffic(range(25)))
        await label(services.auditor, *((each, "A") for each in found[::2]))

        async def pages(auditor: Auditor, **given: object) -> list[AuditPage]:
            collected: list[AuditPage] = []
            after: int | None = 0
            while after is not None:
                wanted = {"calibration": None, "status": None, "limit": 4, **given}
                page = await auditor.page(
                    after=after, may_use=lambda _: True, **wanted  # type: ignore[arg-type]
                )  # fmt: skip
                collected.append(page)
                after = page.next_after
            return collected

        async def listed(auditor: Auditor, **given: object) -> list[str]:
            return [d.id for page in await pages(auditor, **given) for d, _ in page.draws]

        auditor = services.auditor
        assert await listed(auditor) == found
        assert await listed(auditor, calibration="default", limit=25) == found
        assert await listed(auditor, calibration="other") == []
        assert await listed(auditor, status="labelled") == found[::2]
        assert await listed(auditor, status="open") == found[1::2]
        assert await listed(auditor, status="expired") == []
        later = replica(store, seconds_later=5000.0)
        assert await listed(later, status="expired") == found[1::2]
        assert [len(page.draws) for page in await pages(auditor)] == [4] * 6 + [1]
        mine = await auditor.page(
            calibration=None, status=None, after=0, limit=9, may_use=lambda _: False
        )
        assert mine == AuditPage([], None)
