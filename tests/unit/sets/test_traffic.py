"""Tests of the values of recent judgments that are tested for drift."""

import pytest

from app.core.preference import preference_from_gaps
from app.judging.services import Services
from app.sets.traffic import VALUES
from tests.serving import pair, request, services_of
from tests.unit.audits.judged import calibrate, judge


def waiting(services: Services) -> int:
    """Number of judgments that wait for a test of drift, which are then taken."""
    return sum(len(each.take_fresh()) for each in services.calibrations.traffic.sets()) // VALUES


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
        values = services.calibrations.traffic.take_fresh(calibration)
        preference = judgment.preference
        assert preference is not None
        gap = abs(preference.p_fwd - preference.p_rev)
        assert values.tolist() == [preference.uncertainty, gap, judgment.label_mass]
        # They are the same numbers as those of the labeled pairs.
        numbers = calibration.table.numbers
        found = preference_from_gaps(numbers[:, 0], numbers[:, 1])
        assert found.entropy.tolist() == calibration.uncertainty.tolist()


async def test_judgments_that_nobody_tests_take_a_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.sets.traffic._MOST_FRESH", 50)
    async with services_of() as services:
        await calibrate(services)
        for _ in range(5):
            await judge(services, 30)
        assert waiting(services) == 50
        await judge(services, 30)
        assert waiting(services) == 30
