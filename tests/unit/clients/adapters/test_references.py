"""Win rates against reference answers, comparisons in a file, and the check of an adapter."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scope_judge import NotFoundError, RequestError, ScopeClient, UnavailableError
from scope_judge.reward_source import REASONS, shared_source
from scope_judge.slime import custom_rm, log_rollout
from scope_judge.trl import AsyncScopeReward, ScopeReward
from scope_judge.verl import compute_score
from tests.unit.clients.adapters.doors import Logs, sample, slime_arguments
from tests.unit.clients.adapters.service import served

PROMPTS = ["One?"] * 3 + ["Two?"] * 2
COMPLETIONS = [f"quality={each}" for each in (2, 0, 1, 0, 3)]
REFERENCES = ["quality=1"] * 3 + ["quality=5"] * 2
# By hand: 2 wins, 0 loses, 1 equals its reference, and both others lose.
WITH_REFERENCES = [1.0, -1.0, None, -1.0, -1.0]
GROUPS = [1.0, -1.0, 0.0, -1.0, 1.0]
METRICS = {"scope_judge/win_rate": 1 / 4, "scope_judge/coverage": 4 / 5}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as url:
        yield url


@pytest.mark.parametrize("kind", [ScopeReward, AsyncScopeReward])
@pytest.mark.parametrize(
    ("against", "expected"), [("group", GROUPS), ("reference", WITH_REFERENCES)]
)
def test_the_win_rate_is_logged_beside_either_reward(
    url: str, kind: Any, against: Any, expected: list[float | None], tmp_path: Path
) -> None:
    file = tmp_path / "comparisons.jsonl"
    logs, options = Logs(), {"url": url, "alpha": None, "comparisons_file": file}
    reward = kind(reference="answer", against=against, **options)

    def rewarded() -> Any:
        return reward(PROMPTS, COMPLETIONS, answer=REFERENCES, **logs.columns())

    async def awaited() -> Any:
        try:
            return await rewarded() if kind is AsyncScopeReward else rewarded()
        finally:
            await reward._source.aclose()

    assert asyncio.run(awaited()) == expected
    tied = 1 / 5 if against == "reference" else 0.0
    reasons = {f"scope_judge/{name}": tied if name == "tied" else 0.0 for name in REASONS}
    assert logs.metrics == {**reasons, **METRICS}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    of_references = [row for row in rows if row["with_reference"]]
    shown = {(row["question"], row["response_a"], row["response_b"]) for row in of_references}
    assert shown == {
        (*row,) for row in zip(PROMPTS, COMPLETIONS, REFERENCES, strict=True) if row[1] != row[2]
    }
    assert len(rows) - len(of_references) == (4 if against == "group" else 0)
    assert [row["verdict"] for row in of_references].count("A") == 1


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
    with pytest.raises(ValueError, match="the column of the references"):
        ScopeReward(url=url, against="reference")
    with pytest.raises(ValueError, match="group or reference"):
        ScopeReward(url=url, against="all")  # type: ignore[arg-type]


def test_slime_logs_the_win_rate_of_either_reward(url: str) -> None:
    async def logged(options: dict[str, Any], *, group_rm: bool) -> tuple[Any, Any]:
        samples = [sample(*both) for both in zip(COMPLETIONS[:3], REFERENCES[:3], strict=True)]
        args = slime_arguments({"url": url, "alpha": None, **options}, group_rm=group_rm)
        try:
            found = await custom_rm(args, samples)
        finally:
            await shared_source(rendered=True, url=url, alpha=None).aclose()
        for one, reward in zip(samples, found, strict=True):
            one.reward = reward
        metrics: dict[str, float] = {}
        assert log_rollout(0, args, samples, metrics, 1.0) is False
        return [each["reward"] for each in found], metrics

    of_group, metrics = asyncio.run(logged({"reference": True}, group_rm=True))
    assert of_group == [1.0, -1.0, 0.0]
    assert metrics["scope_judge/win_rate"] == 1 / 2
    assert metrics["scope_judge/coverage"] == pytest.approx(2 / 3)
    assert metrics["scope_judge/tied"] == 0.0
    of_labels, with_labels = asyncio.run(logged({}, group_rm=False))
    assert of_labels == [1.0, -1.0, 0.0]
    assert with_labels == {**metrics, "scope_judge/tied": pytest.approx(1 / 3)}
    _, alone = asyncio.run(logged({}, group_rm=True))
    assert "scope_judge/win_rate" not in alone


def test_slime_without_metrics_of_its_own_has_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reward = {"reward": 1.0, "won": 1, "lost": 0, **dict.fromkeys(REASONS, 0)}
    with caplog.at_level(logging.INFO, "scope_judge"):
        log_rollout(3, None, [SimpleNamespace(reward=reward)], None, 1.0)
    assert "scope_judge/win_rate" in caplog.text


@pytest.mark.parametrize("kind", [ScopeReward, AsyncScopeReward])
def test_a_wrong_option_fails_when_the_function_is_made(url: str, kind: Any) -> None:
    for options, error in (
        ({"alpha": 10}, RequestError),
        ({"calibration": "absent"}, NotFoundError),
        ({"url": "http://127.0.0.1:1"}, UnavailableError),
        ({"alhpa": 0.1}, TypeError),
    ):
        given: dict[str, Any] = {"url": url, **options}
        with pytest.raises(error):
            kind(**given)
        if error is not TypeError:
            kind(check=False, **given)


def test_a_criterion_that_accepts_nothing_is_a_warning(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    ScopeReward(url=url, alpha=0.001)
    assert "no comparison is accepted at alpha 0.001" in caplog.text


@pytest.mark.parametrize("rule", [{}, {"alpha": None}, {"opponents": 2, "rendered": True}])
def test_a_check_has_the_judge_a_judgment_and_the_latency(url: str, rule: dict[str, Any]) -> None:
    with ScopeClient(url) as client:
        found = client.check(**rule)
    assert found.info.judge == found.judgment.judge
    assert found.latency_s > 0
    assert found.warning is None


def test_a_plain_call_of_the_asynchronous_function_explains_itself() -> None:
    given: dict[str, Any] = {"extra_info": {"question": "Which?"}}
    for read in (lambda found: found["score"], float):
        with pytest.raises(TypeError, match=r"asyncio\.run\(compute_score"):
            read(compute_score("pairs", "a", "b", **given))
