"""Labels of draws count exactly once, in the order that their sender judged."""

import logging
import time
from dataclasses import replace

import pytest

from app.audits.auditor import Auditor
from app.audits.entries import AuditLabel, LabelEntry
from app.core.errors import ForbiddenError
from app.ports import AuditStore, RowsChange
from app.stores.memory import MemoryStore
from scope_judge.records import AuditLabels, EarlierLabel
from tests.serving import services_of
from tests.unit.audits.drawing import (
    EXAMPLES,
    audits,
    ids,
    judged,
    label,
    replica,
    sent,
    traffic,
)
from tests.unit.audits.logs import append


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
        end = await rows_of(store)
        assert await label(auditor, *batch) == (0, 0, 3, 0, 0)
        assert await rows_of(store) == end
        assert [audit.label for audit in audits(auditor)] == ["A", "B", "B"]
        # Within a batch, the last label counts, and only that one is written.
        assert await label(auditor, (one, "B"), (one, "tie"), (one, "tie")) == (0, 1, 2, 0, 0)
        assert audits(auditor)[0].label == "tie"
        assert await rows_of(store) == end + 1
        assert await label(auditor, (one, "B"), (one, "tie")) == (0, 0, 2, 0, 0)
        assert audits(auditor)[0].label == "tie"
        assert await rows_of(store) == end + 1


async def test_a_draw_that_nobody_can_label_is_closed_and_may_be_labeled_after_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "app.audits")
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two, three = await ids(services, traffic(range(3)))
        auditor = services.auditor
        report = await auditor.label(
            [sent(one, "none"), sent(two, "A"), sent(three, "none")], may_use=bool
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


async def test_a_draw_takes_its_first_label_in_time_and_corrections_for_ever() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0, audit_expires_s=1000.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        early, late = await ids(services, traffic([1, 2]))
        await label(services.auditor, (early, "A"))
        much_later = replica(store, seconds_later=5000.0)
        assert await label(much_later, (early, "B"), (late, "B")) == (0, 1, 0, 0, 1)
        assert [audit.label for audit in audits(much_later)] == ["B", None]
        late_label = replace(sent(late, "A"), at=much_later.now())
        assert (await much_later.label([late_label], may_use=bool)).expired_ids == (late,)


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
        # Both ids in one batch are two labels of one draw, and the last one counts.
        end = await rows_of(services.store)
        assert await label(services.auditor, (here, "tie"), (there, "B")) == (0, 1, 1, 0, 0)
        assert await rows_of(services.store) == end + 1
        assert audits(services.auditor)[0].label_of(here) == "A"


async def rows_of(store: AuditStore) -> int:
    """Number of rows: audits, closings, and changed labels."""
    return (await store.audit_states())["default"].rows


class RacingStore(MemoryStore):
    """A store that takes the label of somebody else right before the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.first: LabelEntry | None = None

    async def write_audits(self, name: str, change: RowsChange) -> int | None:
        if self.first is not None:
            first, self.first = self.first, None
            await append(self, first)
        return await super().write_audits(name, change)


async def yielding(auditor: Auditor, by: str, *labels: tuple[str, AuditLabel]) -> AuditLabels:
    sent_by = [sent(*one, by=by) for one in labels]
    return await auditor.label(sent_by, may_use=bool, yields=True)


async def test_a_label_that_yields_leaves_those_of_other_keys() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two, three = await ids(services, traffic(range(3)))
        auditor = services.auditor
        await label(auditor, (one, "A"), (two, "none"), by="ana")
        end = await rows_of(store)
        report = await yielding(auditor, "ben", (one, "B"), (two, "A"), (one, "A"))
        assert (report.labelled, report.updated, report.unchanged) == (0, 0, 0)
        assert report.earlier == tuple(EarlierLabel(id=each, labeler="ana") for each in (one, two))
        assert await rows_of(store) == end
        report = await yielding(auditor, "ben", (one, "B"), (three, "tie"))
        assert (report.labelled, report.earlier) == (1, (EarlierLabel(id=one, labeler="ana"),))
        # Ben corrects his own label, and Ana hers.
        assert (await yielding(auditor, "ben", (three, "A"))).updated == 1
        assert (await yielding(auditor, "ana", (one, "tie"))).updated == 1
        assert [audit.label for audit in audits(auditor)] == ["tie", "none", "A"]
        # Labels of other routes replace any label.
        assert await label(auditor, (three, "B"), by="ana") == (0, 1, 0, 0, 0)


async def test_a_label_that_comes_in_between_stays_on_every_replica(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "app.audits")
    store = RacingStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        one, two = await ids(services, traffic(range(2)))
        store.first = LabelEntry(id=one, label="A", by="ana", at=time.time())
        report = await yielding(services.auditor, "ben", (one, "B"), (two, "B"))
        assert (report.labelled, report.updated, report.unchanged) == (1, 0, 0)
        assert report.earlier == (EarlierLabel(id=one, labeler="ana"),)
        assert "changed" not in caplog.text
        other = replica(store)
        await other.open()
        for auditor in (services.auditor, other):
            assert [audit.label for audit in audits(auditor)] == ["A", "B"]
            assert [audit.labelled_by for audit in audits(auditor)] == ["ana", "ben"]
            assert [audit.label_changes for audit in audits(auditor)] == [0, 0]
