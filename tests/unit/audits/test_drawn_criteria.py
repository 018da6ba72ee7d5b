"""The draws of each criterion are its own, and one key does not take the places of all criteria."""

import itertools
from typing import Any

from app.audits.book import MOST_CRITERIA
from tests.serving import services_of
from tests.unit.audits.drawing import (
    EXAMPLES,
    judged,
    traffic,
)


async def test_one_key_does_not_take_the_place_of_the_services_own_criterion() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        asked = [0.3 + number / 1000 for number in range(MOST_CRITERIA + 6)]
        named = [
            await judged(services, traffic([number]), alpha=alpha)
            for number, alpha in enumerate(asked)
        ]
        assert [audit is None for (audit,) in named] == [False] * MOST_CRITERIA + [True] * 6
        calibration = await services.calibrations.get("default")
        assert services.auditor.refused(calibration) == 6
        assert None not in await judged(services, traffic([500]), alpha=0.1)
        await services.auditor.catch_up()
        report = await services.monitor.of(calibration)
        assert len(report.criteria) == MOST_CRITERIA + 1


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
