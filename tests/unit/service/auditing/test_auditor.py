"""The auditor draws at random and the same everywhere, and its labels count exactly once."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from app.core.comparison import AuditReference, Comparison, Judgment
from app.core.errors import (
    ForbiddenError,
    LabelChangesError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.observability.telemetry import Telemetry
from app.ports import Store
from app.service.auditing.auditor import MOST_LABEL_CHANGES, Auditor, SentLabel
from app.service.auditing.entries import AuditLabel
from app.service.auditing.ledger import KEYLESS, MOST_CRITERIA, MOST_CRITERIA_OF_KEY, Audit
from app.service.services import Services
from app.stores.memory import MemoryStore
from tests.patience import PATIENCE_S
from tests.serving import labelled, pair, request, services_of

EXAMPLES = [labelled(gap / 10, "A", number=gap) for gap in range(1, 41)]


class PausingStore(MemoryStore):
    """A store in which each entry takes some turns of the event loop."""

    async def append_audits(self, entries: Sequence[str], *, synced: bool = True) -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().append_audits(entries, synced=synced)


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
    services: Services,
    comparisons: Sequence[Comparison],
    *,
    by: str = KEYLESS,
    **criterion: object,
) -> list[AuditReference | None]:
    """Returns the audits of the judgments, in order."""
    asked = [request(each, **criterion) for each in comparisons]  # type: ignore[arg-type]
    outcomes = await services.judge.judge_batch(asked, by=by)
    assert all(isinstance(outcome, Judgment) for outcome in outcomes)
    return [outcome.audit for outcome in outcomes if isinstance(outcome, Judgment)]


async def ids(services: Services, comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the ids of judgments that were all drawn."""
    return [audit.id for audit in await judged(services, comparisons) if audit is not None]


def sent(identifier: str, label: AuditLabel) -> SentLabel:
    """Returns a label as somebody sends it."""
    reason = "the texts are gone" if label == "none" else None
    return SentLabel(id=identifier, label=label, reason=reason)


async def label(
    auditor: Auditor, *labels: tuple[str, AuditLabel], by: str = "ana", sets: str | None = None
) -> tuple[int, int, int, int, int]:
    """Returns the numbers of labelled, updated, unchanged, unknown and expired ids."""
    report = await auditor.label(
        [sent(*each) for each in labels],
        by=by,
        may_use=lambda name: sets is None or name == sets
    )  # fmt: skip
    return (
        report.labelled,
        report.updated,
        report.unchanged,
        len(report.unknown),
        len(report.expired),
    )


def audits(auditor: Auditor) -> list[Audit]:
    return list(auditor.ledger.audits())


def replica(store: Store, *, seconds_later: float = 0.0, expires_s: float = 1000.0) -> Auditor:
    """Another replica on the same store, whose clock goes ahead."""
    return Auditor(
        store=store,
        telemetry=Telemetry.on_own_registry(),
        fingerprint="f" * 64,
        rate=0.0,
        expires_s=expires_s,
        now=lambda: time.time() + seconds_later,
    )


async def test_rate_one_draws_every_judgment_that_used_an_alpha() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        drawn = await judged(services, traffic(range(20)))
        assert all(audit is not None and audit.rate == 1.0 for audit in drawn)
        assert await judged(services, traffic(range(20, 30)), alpha=None) == [None] * 10
        # Labelled examples are no fresh traffic.
        assert await judged(services, [each.comparison for each in EXAMPLES]) == [None] * 40
        assert [audit.draw.id for audit in audits(services.auditor)] == [
            audit.id for audit in drawn if audit
        ]


async def test_a_draw_has_the_measurements_of_its_judgment() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES, label_noise=0.02)
        before = time.time()
        asked = request(pair(2.5, 1.0), alpha=0.15, guarantee="pac", delta=0.05)
        judgment = await services.judge.judge(asked)
        calibration = await services.calibrations.get("default")
        (audit,) = audits(services.auditor)
        draw, decider = audit.draw, audit.draw.decider
        assert decider.criterion == asked.criterion
        assert (decider.write_id, decider.version) == (calibration.write_id, calibration.version)
        assert (draw.accepted, decider.label_noise) == (judgment.verdict != "abstain", 0.02)
        assert before <= draw.at <= time.time()
        assert (draw.score.gap_fwd, draw.score.gap_rev) == pytest.approx((1.5, 1.5))
        assert draw.score.label_mass == judgment.label_mass
        assert draw.fingerprint == services.identity.fingerprint


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


async def test_a_draw_says_nothing_about_another_criterion_or_version() -> None:
    asked: tuple[dict[str, Any], ...] = (
        {"alpha": 0.5},
        {"alpha": 0.1},
        # The next float.
        {"alpha": 0.1 + 2**-56},
        {"alpha": 0.1, "guarantee": "pac", "delta": 0.5},
        {"alpha": 0.1, "guarantee": "pac", "delta": 0.1},
    )
    async with services_of(audit_rate=0.5) as services:
        drawn = list[list[bool]]()
        for version in (1, 2):
            await services.calibrator.add("default", EXAMPLES[: 30 + version])
            for criterion in asked:
                found = await judged(services, traffic(range(1000)), **criterion)
                drawn.append([audit is not None for audit in found])
    # 5 standard deviations of a binomial distribution.
    for each in drawn:
        assert abs(sum(each) - 500) < 80
    for one, other in itertools.combinations(drawn, 2):
        assert abs(sum(map(bool.__and__, one, other)) - 250) < 69


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
        assert len(audits(services.auditor)) == 1


async def test_the_swapped_comparison_is_the_same_draw_with_mirrored_labels() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        (one,) = traffic([1])
        here, there = await ids(services, [one, one.swapped])
        assert (here[:-1], here != there) == (there[:-1], True)
        assert len(audits(services.auditor)) == 1
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
        await until(lambda: len(audits(other)) == 1)
        store.trouble = store.refuse
        await until(lambda: "without draws" in caplog.text)
        store.trouble = None
        await until(lambda: "again" in caplog.text)
        await ids(services, traffic([2]))
        await until(lambda: len(audits(other)) == 2)
        following.cancel()
        assert caplog.text.count("without draws") == 1


async def test_replicas_with_different_rates_agree_on_their_draws_and_figures() -> None:
    store = MemoryStore()
    async with (
        services_of(store=store, audit_rate=0.1) as low,
        services_of(store=store, audit_rate=0.5) as high,
        services_of(store=store, audit_rate=0.0) as none,
    ):
        await low.calibrator.add("default", EXAMPLES)
        found = {
            services: [
                None if audit is None else audit.id
                for audit in await judged(services, traffic(range(400)), alpha=0.3)
            ]
            for services in (low, high, none)
        }
        assert all(a in (None, b) for a, b in zip(found[low], found[high], strict=True))
        assert found[none] == [None] * 400
        reports = []
        for services in (low, high, none):
            await services.auditor.catch_up()
            drawn = audits(services.auditor)
            assert len(drawn) == 400 - found[high].count(None)
            # A judgment that both replicas draw counts once, with the rate of the first one.
            assert [audit.draw.rate for audit in drawn].count(0.1) == 400 - found[low].count(None)
            calibration = await services.calibrations.get("default")
            reports.append((await services.monitor.of(calibration)).criteria)
        assert reports[0] == reports[1] == reports[2] != ()


async def test_a_key_that_begins_many_criteria_leaves_half_of_the_places_to_others() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        calls = [
            judged(services, traffic([number]), alpha=0.3 + number / 1000, by="greedy")
            for number in range(100)
        ]
        named = [audit for (audit,) in await asyncio.gather(*calls) if audit is not None]
        assert len(named) == MOST_CRITERIA_OF_KEY
        calibration = await services.calibrations.get("default")
        assert services.auditor.refused(calibration) == 100 - MOST_CRITERIA_OF_KEY
        assert await judged(services, traffic([200]), alpha=0.2, by="other") != [None]
        # A criterion that counts already is audited for every key.
        assert await judged(services, traffic([201]), alpha=0.2, by="greedy") != [None]


async def test_replicas_that_race_for_the_last_criteria_agree_on_them_and_lose_no_label() -> None:
    store = PausingStore()
    async with (
        services_of(store=store, audit_rate=1.0) as one,
        services_of(store=store, audit_rate=1.0) as other,
    ):
        await one.calibrator.add("default", EXAMPLES)
        calls = [
            judged((one, other)[number % 2], traffic([number]), alpha=0.3 + number / 1000)
            for number in range(200)
        ]
        named = [audit.id for (audit,) in await asyncio.gather(*calls) if audit is not None]
        # Each replica begins at most 64 before it sees those of the other one.
        assert MOST_CRITERIA < len(named) <= 2 * MOST_CRITERIA
        assert await judged(other, traffic([500]), alpha=0.6) == [None]
        await one.auditor.catch_up()
        await other.auditor.catch_up()
        calibration = await one.calibrations.get("default")
        reports = [await each.monitor.of(calibration) for each in (one, other)]
        assert reports[0].criteria == reports[1].criteria
        assert len(reports[0].criteria) == MOST_CRITERIA
        labels: list[tuple[str, AuditLabel]] = [(identifier, "A") for identifier in named]
        assert await label(other.auditor, *labels) == (len(named), 0, 0, 0, 0)


async def test_a_secret_that_did_not_make_the_draws_of_the_log_is_refused() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=0.5) as services:
        await services.calibrator.add("default", EXAMPLES)
        await judged(services, traffic(range(20)))
        store._secret = None
        with pytest.raises(StoreCorruptError, match="secret"):
            async with services_of(store=store, audit_rate=0.5):
                pass
        # The replica that has the secret goes on, and so does one that draws nothing.
        assert any(await judged(services, traffic(range(20, 40))))
        async with services_of(store=store, audit_rate=0.0) as none:
            assert len(audits(none.auditor)) == len(audits(services.auditor))


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
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two, three = await ids(services, traffic(range(3)))
        auditor = services.auditor
        assert await label(auditor, (one, "A"), (two, "tie"), ("0" * 32, "B")) == (2, 0, 0, 1, 0)
        batch: list[tuple[str, AuditLabel]] = [(one, "A"), (two, "B"), (three, "B")]
        assert await label(auditor, *batch) == (1, 1, 1, 0, 0)
        # A batch that is sent again changes nothing.
        end = await store.last_audit()
        assert await label(auditor, *batch) == (0, 0, 3, 0, 0)
        assert await store.last_audit() == end
        assert [audit.label for audit in audits(auditor)] == ["A", "B", "B"]
        # Within a batch, the last label counts.
        assert await label(auditor, (one, "B"), (one, "tie"), (one, "tie")) == (0, 2, 1, 0, 0)
        assert audits(auditor)[0].label == "tie"
        assert await label(auditor, (one, "B"), (one, "tie")) == (0, 2, 0, 0, 0)
        assert audits(auditor)[0].label == "tie"


async def test_a_full_disk_is_one_line_of_the_log_until_it_takes_draws_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)

        async def full(entries: Sequence[str], *, synced: bool = True) -> int:
            raise StoreUnavailableError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(services.store, "append_audits", full)
            for number in range(3):
                assert await judged(services, traffic([number])) == [None]
                # All reads work.
                await services.auditor.catch_up()
        lines = ("judging continues without draws", "takes draws for audits again")
        assert [caplog.text.count(line) for line in lines] == [1, 0]
        assert await ids(services, traffic([4]))
        await services.auditor.catch_up()
        assert [caplog.text.count(line) for line in lines] == [1, 1]


async def test_a_draw_that_nobody_can_label_is_closed_and_may_be_labelled_after_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "app.audits")
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two, three = await ids(services, traffic(range(3)))
        auditor = services.auditor
        report = await auditor.label(
            [sent(one, "none"), sent(two, "A"), sent(three, "none")], by="ana", may_use=bool
        )
        assert (report.labelled, report.closed, report.updated, report.unchanged) == (1, 2, 0, 0)
        statuses = [audit.status(time.time()) for audit in audits(auditor)]
        assert statuses == ["closed", "labelled", "closed"]
        assert await label(auditor, (one, "none")) == (0, 0, 1, 0, 0)
        assert await label(auditor, (one, "B"), by="bob") == (0, 1, 0, 0, 0)
        assert [audit.label for audit in audits(auditor)] == ["B", "A", "none"]
        assert f"audit {three}: closed without a label by 'ana'" in caplog.text
        assert f"audit {one}: label changed from none to B by 'bob'" in caplog.text
        # A reason is a text of a caller.
        assert "texts are gone" not in caplog.text


async def test_a_label_may_change_a_hundred_times(caplog: pytest.LogCaptureFixture) -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two = await ids(services, traffic(range(2)))
        auditor = services.auditor
        sides: Iterator[AuditLabel] = itertools.cycle(("A", "B"))
        batch = [SentLabel(id=one, label=next(sides)) for _ in range(MOST_LABEL_CHANGES // 2 + 1)]
        await auditor.label(batch, by="ana", may_use=bool)
        before = await services.store.last_audit()
        again = [SentLabel(id=each.id, label="B" if each.label == "A" else "A") for each in batch]
        with pytest.raises(LabelChangesError, match="none of the labels was taken"):
            await auditor.label([SentLabel(id=two, label="A"), *again], by="ana", may_use=bool)
        assert await services.store.last_audit() == before
        for _ in range(MOST_LABEL_CHANGES // 2):
            assert await label(auditor, (one, next(sides))) == (0, 1, 0, 0, 0)
        with pytest.raises(LabelChangesError):
            await label(auditor, (one, "none"))
        # The label that it has may be sent again, and other audits take theirs.
        kept = audits(auditor)[0].label
        assert kept is not None
        assert await label(auditor, (one, kept), (two, "A")) == (1, 0, 1, 0, 0)
        assert caplog.text.count(f"audit {one}: label changed") == MOST_LABEL_CHANGES


async def test_a_draw_takes_its_first_label_in_time_and_corrections_for_ever() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        early, late = await ids(services, traffic([1, 2]))
        await label(services.auditor, (early, "A"))
        much_later = replica(store, seconds_later=5000.0)
        assert await label(much_later, (early, "B"), (late, "B")) == (0, 1, 0, 0, 1)
        assert [audit.label for audit in audits(much_later)] == ["B", None]
        report = await much_later.label([sent(late, "A")], by="ana", may_use=lambda _: True)
        assert report.expired == (late,)


async def test_an_expired_draw_is_not_offered_for_a_label_again() -> None:
    # The clock of the service does not move, so the draw is made long ago.
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0, audit_expires_s=1e-9) as services:
        await services.calibrator.add("default", EXAMPLES)
        assert await judged(services, traffic([1])) == [None]
        assert len(audits(services.auditor)) == 1


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
        assert [audit.label for audit in audits(services.auditor)] == [None, None]
        assert await label(services.auditor, (here, "A"), sets="default") == (1, 0, 0, 0, 0)


async def test_labels_sent_at_once_to_several_replicas_count_exactly_once() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await ids(services, traffic(range(40)))
        batch: list[tuple[str, AuditLabel]] = [(each, "A") for each in found]
        replicas = [replica(store) for _ in range(4)]
        for each in replicas:
            await each.open()
        counts = await asyncio.gather(*(label(each, *batch) for each in replicas))
        assert sum(first for first, *_ in counts) == 40
        assert sum(unchanged for _, _, unchanged, _, _ in counts) == 120
        for each in replicas:
            await each.catch_up()
            assert audits(each) == audits(replicas[0])


async def test_a_restarted_replica_has_the_same_ledger() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        found = await ids(services, traffic(range(1200)))
        await label(services.auditor, *((each, "B") for each in found[:700]))
        await services.auditor.catch_up()
        again = replica(store, expires_s=services.auditor.expires_s)
        await again.open()
        assert audits(again) == audits(services.auditor)
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
    assert len(audits(follower)) == 3
    store._audits = restored._audits
    store._audits.append('{"kind": "later"}')
    await follower.catch_up()
    assert len(audits(follower)) == length
    assert follower.ledger.position == length + 1


async def test_the_secret_of_another_log_draws_from_then_on() -> None:
    found = []
    restored = MemoryStore()
    store = MemoryStore()
    for own in (restored, store):
        async with services_of(store=own, audit_rate=1.0) as services:
            await services.calibrator.add("default", EXAMPLES)
            await judged(services, traffic(range(20)))
            if own is store:
                store._audits, store._secret = restored._audits[:2], restored._secret
                await services.auditor.catch_up()
            found.append(await judged(services, traffic(range(100, 200))))
    assert found[0] == found[1]


async def test_a_page_is_that_of_the_log_now() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        drawn = await ids(services, traffic(range(3)))
        await label(services.auditor, (drawn[0], "A"))
        later = replica(store, seconds_later=5000.0)
        for auditor, status in ((services.auditor, "open"), (later, "expired")):
            page = await auditor.page(
                calibration=None,
                status=None,
                after=0,
                limit=9,
                may_use=lambda _: True,
            )
            listed = [(audit.draw.id, audit.status(page.at)) for audit in page.audits]
            assert listed == [(drawn[0], "labelled"), (drawn[1], status), (drawn[2], status)]
