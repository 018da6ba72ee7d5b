"""Tests of SCOPE_ON_ALARM: what judgments and draws become after an alarm of the audits."""

import asyncio

import pytest

from app.core.calibration import Calibration
from app.core.comparison import Label
from app.judging.services import Services
from scope_judge.records import Judgment
from tests.patience import PATIENCE_S
from tests.serving import services_of
from tests.unit.audits.drawing import FlakyStore, sent
from tests.unit.audits.judged import calibrate, judge

OTHER: dict[str, Label] = {"A": "B", "B": "A"}


async def rung(services: Services) -> Calibration:
    """The set, after people found every drawn verdict wrong."""
    calibration = await calibrate(services)
    judged = [each for each in await judge(services, 60) if each.verdict != "abstain"]
    labels = [sent(each.audit.id, OTHER[each.verdict]) for each in judged if each.audit is not None]
    assert len(labels) == len(judged)
    await services.auditor.label(labels, may_use=lambda name: True)
    report = await services.monitor.of(calibration)
    assert report.alarmed
    return calibration


def reasons(judged: list[Judgment]) -> set[str | None]:
    return {each.reason for each in judged}


async def test_a_judgment_by_a_version_that_ends_an_alarm_does_not_wait_for_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.audits.auditor._PATIENCE_S", 0.01)
    store = FlakyStore()
    async with services_of(store=store, audit_rate=1.0, on_alarm="abstain") as services:
        calibration = await rung(services)
        await calibrate(services, n=calibration.n, seed=7)
        store.hangs = True
        judgments = asyncio.create_task(judge(services, 3))
        async with asyncio.timeout(PATIENCE_S):
            assert reasons(await judgments) == {"suspended"}
        store.hangs = False
        now = await services.calibrations.get("default")
        assert not (await services.monitor.of(now)).alarmed
