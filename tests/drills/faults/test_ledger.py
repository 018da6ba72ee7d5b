"""The checks of the drill itself: they find lost, doubled and wrongly judged examples."""

import math
from typing import Any

import pytest

from app.core.preference import LN2
from tests.drills.faults.client import Answer
from tests.drills.faults.ledger import Ledger
from tests.drills.faults.material import ALPHA, BATCH, threshold_of
from tests.drills.faults.soak_report import growth_of
from tests.drills.faults.verdicts import Ground, fault_of

BATCHES = tuple(range(40))


def found(version: int, *, batches: tuple[int, ...] = BATCHES, missing: int = 0) -> dict[str, Any]:
    """A set as the service shows it."""
    row = {"alpha": ALPHA, "guarantee": "marginal", "threshold": threshold_of(batches)}
    return {"version": version, "n": len(batches) * BATCH - missing, "thresholds": [row]}


def judgment(**changes: Any) -> dict[str, Any]:
    """A certain verdict with some fields changed."""
    p = 0.9
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    whole = {"p_bar": p, "uncertainty": entropy, "threshold": 0.5, "verdict": "A", "reason": None}
    return whole | changes


def test_the_material_has_a_threshold_that_accepts_some_and_not_all() -> None:
    threshold = threshold_of(BATCHES)
    assert threshold is not None
    assert 0.05 < threshold < LN2 - 0.05


def test_a_set_that_is_as_the_log_says_is_fine() -> None:
    ledger = Ledger("s")
    ledger.accept(found(1), BATCHES, attempts=1)
    ledger.rests_on(Ground("s", 1, 320, threshold_of(BATCHES)))
    ledger.finish()
    assert ledger.wrong == []
    assert ledger.checked == 1


def test_a_lost_example_is_found() -> None:
    ledger = Ledger("s")
    ledger.accept(found(1, missing=1), BATCHES, attempts=1)
    assert len(ledger.wrong) == 1


@pytest.mark.parametrize(("version", "is_fine"), [(1, True), (3, True), (4, False), (0, False)])
def test_every_attempt_may_become_one_version_and_no_more(version: int, is_fine: bool) -> None:
    ledger = Ledger("s")
    ledger.accept(found(version), BATCHES, attempts=3)
    assert (ledger.wrong == []) is is_fine


@pytest.mark.parametrize(
    "ground",
    [
        Ground("s", 1, 320, 0.1),
        Ground("s", 1, 312, threshold_of(BATCHES)),
        Ground("s", 2, 320, threshold_of(BATCHES)),
        Ground("s", 1, 320, None),
    ],
)
def test_a_judgment_on_another_ground_than_the_version_has_is_found(ground: Ground) -> None:
    ledger = Ledger("s")
    ledger.accept(found(1), BATCHES, attempts=1)
    ledger.rests_on(ground)
    ledger.finish()
    assert len(ledger.wrong) == 1


def test_versions_go_on_after_a_deletion() -> None:
    ledger = Ledger("s")
    ledger.accept(found(5), BATCHES, attempts=5)
    ledger.deleted(attempts=1)
    ledger.accept(found(1), BATCHES, attempts=1)
    assert len(ledger.wrong) == 1


@pytest.mark.parametrize(
    ("changes", "is_fine"),
    [
        ({}, True),
        ({"verdict": "abstain", "reason": "uncertain"}, False),
        ({"threshold": 0.1}, False),
        ({"threshold": 0.1, "verdict": "abstain", "reason": "uncertain"}, True),
        ({"threshold": None, "verdict": "abstain", "reason": "infeasible"}, True),
        ({"verdict": "B"}, False),
        ({"uncertainty": 0.2}, False),
        # An engine failure that was scored as if it were an answer.
        (
            {"p_bar": 0.5, "uncertainty": LN2, "verdict": "abstain", "reason": "no_preference"},
            False,
        ),
    ],
)
def test_a_verdict_that_its_own_numbers_do_not_imply_is_found(
    changes: dict[str, Any], is_fine: bool
) -> None:
    assert (fault_of(judgment(**changes), p_bar=0.9, tolerance=1e-9) is None) is is_fine


def test_growing_memory_is_seen_and_steady_memory_is_not() -> None:
    assert growth_of([150.0 + i for i in range(100)]) == pytest.approx(237 / 187, abs=0.01)
    assert growth_of([100.0] * 25 + [150.0] * 75) == 1
    assert growth_of([100.0] * 10) is None


def test_outcomes_tell_a_stale_answer_a_problem_and_no_answer_apart() -> None:
    def outcome(status: int, headers: dict[str, str], body: Any, trouble: str = "") -> str:
        return Answer(status, headers, body, 0.0, 0.1, trouble).outcome

    assert outcome(200, {}, {}) == "200"
    assert outcome(200, {"scope-calibration-age": "3"}, {}) == "200 stale"
    assert outcome(503, {}, {"code": "store_unavailable"}) == "503 store_unavailable"
    assert outcome(200, {}, {"status": "degraded"}) == "200 degraded"
    assert outcome(0, {}, None, "refused") == "no answer (refused)"


def test_no_rollback_targets_a_deletion_and_long_logs_forget_the_oldest() -> None:
    ledger = Ledger("s")
    for version in range(1, 1000, 2):
        ledger.accept(found(version), BATCHES, attempts=1)
        if version % 7 == 0:
            ledger.deleted(attempts=1)
            ledger.accept(found(version + 2), BATCHES, attempts=1)
            assert version + 1 not in dict(ledger.earlier())
    assert len(ledger._states) == 400
