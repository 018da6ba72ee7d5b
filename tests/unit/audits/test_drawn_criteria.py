"""The draws of each criterion are its own, and one key does not take the places of all criteria."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from app.audits.book import MOST_CRITERIA
from app.audits.entries import AuditLabel
from app.ports import StoredRow
from app.stores.memory import MemoryStore
from tests.serving import services_of
from tests.unit.audits.drawing import (
    EXAMPLES,
    judged,
    label,
    traffic,
)


class PausingStore(MemoryStore):
    """A store in which each entry takes some turns of the event loop."""

    async def write_audits(self, name: str, rows: Sequence[StoredRow], **more: Any) -> int | None:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().write_audits(name, rows, **more)


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
        # The service's own criterion, which nobody has used, keeps its place.
        assert len(named) == MOST_CRITERIA - 1
        calibration = await one.calibrations.get("default")
        refused = [each.auditor.refused(calibration) for each in (one, other)]
        assert sum(refused) == 200 - len(named)
        assert await judged(other, traffic([500]), alpha=0.6) == [None]
        await one.auditor.catch_up()
        await other.auditor.catch_up()
        reports = [await each.monitor.of(calibration) for each in (one, other)]
        assert reports[0].criteria == reports[1].criteria
        assert len(reports[0].criteria) == MOST_CRITERIA - 1
        labels: list[tuple[str, AuditLabel]] = [(identifier, "A") for identifier in named]
        assert await label(other.auditor, *labels) == (len(named), 0, 0, 0, 0)


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
