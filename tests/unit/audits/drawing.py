"""Services that draw judgments for audits, and the labels that people send."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from app.audits.auditor import Auditor
from app.audits.entries import Audit, AuditLabel, LabelEntry
from app.core.comparison import Case, Comparison
from app.core.errors import StoreUnavailableError
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.ports import AuditState, RowsChange, Store
from app.stores.memory import MemoryStore
from scope_judge.records import AuditReference
from tests.serving import labelled, pair, request

EXAMPLES = [labelled(gap / 10, "A", number=gap) for gap in range(1, 41)]


class FlakyStore(MemoryStore):
    """A store that refuses or hangs on request, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Callable[[], None] | None = None
        self.hangs = False
        self.appends = 0

    async def write_audits(self, name: str, change: RowsChange) -> int | None:
        self.appends += 1
        await self._suffer()
        return await super().write_audits(name, change)

    async def audit_states(self) -> dict[str, AuditState]:
        await self._suffer()
        return await super().audit_states()

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
    by: str = "anonymous",
    **criterion: Any,
) -> list[AuditReference | None]:
    """Returns the audits of the judgments, in order."""
    asked = [request(each, **criterion) for each in comparisons]
    outcomes = await services.judge.judge_batch(asked, by=by)
    assert all(isinstance(outcome, Case) for outcome in outcomes)
    return [outcome.judgment.audit for outcome in outcomes if isinstance(outcome, Case)]


async def ids(services: Services, comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the ids of judgments that were all drawn."""
    return [audit.id for audit in await judged(services, comparisons) if audit is not None]


def sent(identifier: str, label: AuditLabel, *, by: str = "ana") -> LabelEntry:
    """Returns a label as somebody sends it."""
    reason = "the texts are gone" if label == "none" else None
    return LabelEntry(id=identifier, label=label, by=by, at=time.time(), reason=reason)


async def label(
    auditor: Auditor, *labels: tuple[str, AuditLabel], by: str = "ana", sets: str | None = None
) -> tuple[int, int, int, int, int]:
    """Returns the numbers of labeled, updated, unchanged, unknown and expired ids."""
    report = await auditor.label(
        [replace(sent(*one), by=by, at=auditor.now()) for one in labels],
        may_use=lambda name: sets is None or name == sets,
    )
    return report.labelled, report.updated, report.unchanged, report.unknown, report.expired


def audits(auditor: Auditor) -> list[Audit]:
    return [
        audit
        for book in auditor.books
        for audit in sorted(book.audits.values(), key=lambda each: each.place)
    ]


def replica(store: Store, *, seconds_later: float = 0.0) -> Auditor:
    """Another replica on the same store, whose clock goes ahead."""
    return Auditor(
        store=store,
        telemetry=Telemetry.on_own_registry(),
        fingerprint="f" * 64,
        rate=0.0,
        expires_s=1000.0,
        now=lambda: time.time() + seconds_later,
    )
