"""The cheap attacks, and the computation of the figures of all attacks."""

import pytest

from tests.drills.attacks.catalogue import ATTACKS
from tests.drills.attacks.outcome import Outcome, carried_out
from tests.drills.attacks.report import SHOWN, markdown, targets
from tests.drills.attacks.watch import Seen

# `make drills` requires 250 ms on a quiet machine; here other tests keep both cores busy.
_MOST_HEALTHZ_P99_S = 5.0


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.cheap])
def test_the_service_holds(name: str) -> None:
    outcome = carried_out(ATTACKS[name])
    assert not outcome.broke, outcome.broke
    if outcome.seen is not None:
        assert not outcome.seen.judge_failed, outcome.seen
        assert outcome.seen.judge["200"], "the key holder got no answer"
        assert outcome.seen.healthz_p99_s < _MOST_HEALTHZ_P99_S
        assert outcome.seen.peak_mib <= 1.1 * outcome.seen.idle_mib


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (Seen(idle_mib=100, peak_mib=111), "memory grew by 11%"),
        (Seen(idle_mib=100, peak_mib=100, healthz_p99_s=0.3), "/healthz took 0.30 s"),
        (Seen(idle_mib=100, peak_mib=100, judge={"200": 5, "429": 2}), "2 judgments"),
        (Seen(idle_mib=100, peak_mib=109, healthz_p99_s=0.2, judge={"200": 5}), None),
    ],
)
def test_a_promise_that_does_not_hold_is_a_fault(seen: Seen, fault: str | None) -> None:
    faults = Outcome("any", "", seen=seen).faults
    assert len(faults) == (fault is not None)
    assert fault is None or faults[0].startswith(fault)


def test_the_document_has_the_shown_attacks_and_the_missed_targets() -> None:
    first, second = SHOWN[:2]
    held = Outcome(first, "12 | 13", seen=Seen(idle_mib=100, peak_mib=100, judge={"200": 5}))
    slow = Seen(idle_mib=100, peak_mib=150, healthz_p99_s=0.2, judge={"200": 2, "429": 1})
    figures = {first: held.as_json(), second: Outcome(second, "", seen=slow).as_json()}
    rows = markdown({first: figures[first]}).splitlines()
    assert len(rows) == 2 + len(SHOWN)
    assert rows[2].count("|") == 4
    assert "12 / 13" in rows[2]
    assert "not run" in rows[3]
    answered, slowest, missed = targets(figures).splitlines()
    assert "7 of 8" in answered
    assert f"0.20 s (`{second}`)" in slowest
    assert f"`{second}`: memory grew by 50%" in missed
