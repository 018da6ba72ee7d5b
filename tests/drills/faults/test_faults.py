"""Faults lose nothing, double nothing and never become a verdict; `make faults` causes them all."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.drills.faults.catalogue import FAULTS
from tests.drills.faults.experiment import FaultReport

# One second each: cheap enough for every change.
QUICK = ("redis-hang", "network-reset", "sqlite-locked", "service-kill")
QUICK_SECONDS = 1.0


async def caused(name: str, folder: Path, seconds: float) -> FaultReport:
    """The outcome of a fault; the test is skipped if the fault is impossible here."""
    # `make faults` judges speed. A busy machine takes ten times as long (tests/patience.py).
    fault = replace(FAULTS[name], slowest_judge_s=10 * FAULTS[name].slowest_judge_s)
    obstacle = fault.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    outcome = await fault.run(folder, seconds)
    assert outcome.wrong == []
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.healthy_s is not None
    # Without traffic the test would show nothing.
    assert outcome.examples > 300
    assert outcome.verdicts > 60
    return outcome


@pytest.mark.parametrize("name", QUICK)
async def test_a_fault_under_load_loses_nothing_and_heals_by_itself(
    name: str, tmp_path: Path
) -> None:
    await caused(name, tmp_path, QUICK_SECONDS)


async def test_judging_goes_on_while_the_store_is_gone_and_says_so(tmp_path: Path) -> None:
    outcome = await caused("redis-kill", tmp_path, QUICK_SECONDS)
    assert set(outcome.judge) == {"200", "200 stale"}
    assert "200 degraded" in outcome.readyz
    assert "503 store_unavailable" in outcome.calibrate
