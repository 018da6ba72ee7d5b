"""Win rates against reference answers, and the check of an adapter."""

import asyncio
from typing import Any

import pytest

from scope_judge import NotFoundError, RequestError, UnavailableError
from scope_judge.reward_source import REASONS
from scope_judge.trl import ScopeReward
from tests.unit.clients.adapters.adapters import Logs

PROMPTS = ["One?"] * 3 + ["Two?"] * 2
COMPLETIONS = [f"quality={each}" for each in (2, 0, 1, 0, 3)]
REFERENCES = ["quality=1"] * 3 + ["quality=5"] * 2
# By hand: 2 wins, 0 loses, 1 equals its reference, and both others lose.
WITH_REFERENCES = [1.0, -1.0, None, -1.0, -1.0]
GROUPS = [1.0, -1.0, 0.0, -1.0, 1.0]
METRICS = {"scope_judge/win_rate": 1 / 4, "scope_judge/coverage": 4 / 5}


@pytest.mark.parametrize(
    ("against", "expected"), [("group", GROUPS), ("reference", WITH_REFERENCES)]
)
def test_the_win_rate_is_logged_beside_either_reward(
    url: str, against: Any, expected: list[float | None]
) -> None:
    logs: Logs = Logs()
    reward = ScopeReward(url=url, alpha=None, reference="answer", against=against)
    try:
        found = reward(PROMPTS, COMPLETIONS, answer=REFERENCES, **logs.columns())
    finally:
        asyncio.run(reward._source.aclose())
    assert found == expected
    tied = 1 / 5 if against == "reference" else 0.0
    reasons = {f"scope_judge/{name}": tied if name == "tied" else 0.0 for name in REASONS}
    assert logs.metrics == {**reasons, **METRICS}


def test_no_accepted_comparison_has_no_win_rate(url: str) -> None:
    logs, reward = Logs(), ScopeReward(url=url, alpha=0.001, reference="answer")
    try:
        columns = {"answer": ["quality=0"] * 2, **logs.columns()}
        assert reward(["One?"] * 2, ["quality=1", "quality=3"], **columns) == [None, None]
    finally:
        asyncio.run(reward._source.aclose())
    assert logs.metrics["scope_judge/coverage"] == 0.0
    assert logs.metrics["scope_judge/infeasible"] == 1.0
    assert "scope_judge/win_rate" not in logs.metrics


def test_a_reference_that_is_missing_is_named(url: str) -> None:
    reward = ScopeReward(url=url, reference="answer", check=False)
    with pytest.raises(ValueError, match="no column 'answer'"):
        reward(["One?"], ["a"])
    with pytest.raises(ValueError, match="with a column as reference"):
        ScopeReward(url=url, against="reference")
    with pytest.raises(ValueError, match="min_accepted has no effect"):
        ScopeReward(url=url, against="reference", reference="answer", min_accepted=2)
    with pytest.raises(ValueError, match="against must be"):
        ScopeReward(url=url, against="all")  # type: ignore[arg-type]


def test_a_wrong_option_fails_when_the_function_is_made(url: str) -> None:
    for options, error in (
        ({"alpha": 10}, RequestError),
        ({"calibration": "absent"}, NotFoundError),
        ({"url": "http://127.0.0.1:1"}, UnavailableError),
        ({"alhpa": 0.1}, TypeError),
    ):
        given: dict[str, Any] = {"url": url, **options}
        with pytest.raises(error):
            ScopeReward(**given)
        if error is not TypeError:
            ScopeReward(check=False, **given)


def test_a_criterion_that_accepts_nothing_is_a_warning(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ScopeReward(url=url, alpha=0.001)
    assert "no comparison is accepted at alpha 0.001" in caplog.text
