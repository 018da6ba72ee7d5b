"""Options of the adapters, groups of prompts, slime's baseline, and messages to users."""

import asyncio
import pickle
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scope_judge import RequestError, UnavailableError
from scope_judge.reward_source import (
    VARIABLES,
    Reward,
    RewardSource,
    flags_of,
    resolved,
    shared_source,
)
from scope_judge.slime import custom_rm, normalized_rewards
from scope_judge.trl import ScopeReward, _of_environment, scope_reward
from scope_judge.verl import compute_score
from tests.unit.clients.adapters.adapters import Logs, called_by_slime, sample, slime_arguments
from tests.unit.clients.adapters.service import served

# Option -> text of the variable, and value.
GIVEN: dict[str, tuple[str, Any]] = {
    "alpha": ("0.2", 0.2),
    "guarantee": ("pac", "pac"),
    "delta": ("0.05", 0.05),
    "calibration": ("mine", "mine"),
    "opponents": ("4", 4),
    "reward": ("soft", "soft"),
    "empty": ("null", "null"),
    "thoughts": ("keep", "keep"),
    "overlong": ("loses", "loses"),
    "min_accepted": ("0.5", 0.5),
    "timeout_s": ("20", 20.0),
    "patience_s": ("0", 0.0),
    "stop_after_s": ("60", 60.0),
    "failures": ("none", "none"),
}


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("SCOPE_REWARD_APLHA", "SCOPE_REWARD_ALPHA"), ("SCOPE_REWARD_URL", "SCOPE_URL")],
)
def test_a_misspelled_variable_is_refused(variable: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"no variable {variable}; did you mean {meant}\?"):
        resolved({}, {variable: "0.1"})


def test_every_option_comes_from_its_variable_or_its_argument() -> None:
    assert set(GIVEN) == set(VARIABLES)
    environment = {VARIABLES[name]: text for name, (text, _) in GIVEN.items()}
    values = {name: value for name, (_, value) in GIVEN.items()}
    assert resolved({}, environment) == resolved(values, {}) == values
    assert resolved({"alpha": None}, {"SCOPE_REWARD_ALPHA": "0.2"}) == {"alpha": None}
    given = {"SCOPE_REWARD_ALPHA": "null", "SCOPE_REWARD_OPPONENTS": "all"}
    assert resolved({}, given) == {"alpha": None, "opponents": "all"}
    assert resolved({}, {"SCOPE_REWARD_ALPHA": " "}) == {}


@pytest.mark.parametrize(
    ("options", "environment", "error", "message"),
    [
        ({"alhpa": 0.1}, {}, TypeError, "'alhpa' is not one of the options"),
        ({"failures": "zero"}, {}, ValueError, "failures must be raise or none"),
        ({}, {"SCOPE_REWARD_ALPHA": "a lot"}, ValueError, "SCOPE_REWARD_ALPHA must be a number"),
        ({}, {"SCOPE_REWARD_OPPONENTS": "2.5"}, ValueError, "SCOPE_REWARD_OPPONENTS must be"),
    ],
)
def test_a_wrong_option_is_named(
    options: dict[str, Any], environment: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        resolved(options, environment)


def test_each_group_is_rewarded_by_itself(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["One?"] * 3 + ["Two?"] * 2 + ["Three?"]
    completions = [f"quality={each}" for each in (2, 0, 1, 0, 3, 5)]
    reward = ScopeReward(url=url, alpha=None)
    expected = [1.0, -1.0, 0.0, -1.0, 1.0, None]
    monkeypatch.setenv("SCOPE_URL", url)
    monkeypatch.setenv("SCOPE_REWARD_ALPHA", "null")
    copy = pickle.loads(pickle.dumps(reward))
    try:
        for each in (reward, copy, scope_reward):
            assert each(prompts, completions) == expected
    finally:
        for each in (reward, copy, _of_environment()):
            asyncio.run(each._source.aclose())
        _of_environment.cache_clear()


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("0.29.1", True), ("1.5.1", True), ("1.6.0", False), ("1.16.0", False), ("2.0.0rc1", False)],
)
def test_a_trainer_that_takes_no_reward_for_0_is_refused(
    version: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / f"trl-{version}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: trl\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match=r"1\.6 or newer") if is_refused else nullcontext():
        ScopeReward(check=False)


def said(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def test_a_training_that_gets_no_judgment_for_too_long_is_stopped() -> None:
    gone: dict[str, Any] = {"url": "http://127.0.0.1:9", "patience_s": 0, "failures": "none"}
    asked = [("Which?", ["quality=1", "quality=2"])]
    for stop_after_s in (3600.0, 0.0):
        source = RewardSource(resolved({**gone, "stop_after_s": stop_after_s}))
        if stop_after_s:
            ((one, other),) = source.of_groups(asked)
            assert one == other == Reward(None, "unanswered")
        else:
            with pytest.raises(UnavailableError, match=r"no_rewards: .*\(unanswered\)"):
                source.of_groups(asked)
        asyncio.run(source.aclose())


MALFORMED: dict[str, Any] = {
    "no content": [said(None)],
    "tool call": [said(None, tool_calls=[{"id": "1"}])],
    "two messages": [said("quality=9"), said("quality=9")],
    "the user's message": [{"role": "user", "content": "quality=9"}],
    "part without text": [said([{"type": "image_url", "image_url": {"url": "x"}}])],
    "half of a surrogate pair": "quality=9\ud800",
    "no message": None,
    "3 MB": "quality=9" + "x" * 3_000_000,
    "1.2 MB of JSON": "quality=9" + "\N{CYRILLIC SMALL LETTER YA}" * 200_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_one_malformed_completion_never_stops_a_training(url: str, name: str) -> None:
    completions = [[said("quality=2")], MALFORMED[name], "quality=1", MALFORMED[name]]
    reward, logs = ScopeReward(url=url, alpha=None, failures="none"), Logs()
    try:
        found = reward(["One?"] * 2 + ["Two?"] * 2, completions, **logs.columns())
        again = reward(["One?"] * 3, [*completions[:2], "quality=1"])
    finally:
        asyncio.run(reward._source.aclose())
    assert found == [None] * 4
    assert logs.extra["scope_judge"] == ["unopposed", "failed"] * 2
    assert again == [1.0, None, -1.0]


def test_a_group_that_fits_into_no_request_gets_no_reward(url: str) -> None:
    reward, logs = ScopeReward(url=url, alpha=None, failures="none"), Logs()
    long = [f"quality={i}" + "x" * 900_000 for i in range(3)]
    try:
        completions = [*long, "quality=1", "quality=0"]
        found = reward(["One?"] * 3 + ["Two?"] * 2, completions, **logs.columns())
    finally:
        asyncio.run(reward._source.aclose())
    assert found == [None, None, None, 1.0, -1.0]
    assert logs.extra["scope_judge"] == ["failed"] * 3 + ["rewarded"] * 2


@pytest.mark.parametrize("blank", [None, "", " \n"])
def test_a_blank_reference_in_a_data_set_is_no_reward_for_its_row(url: str, blank: Any) -> None:
    reward, logs = ScopeReward(url=url, alpha=None, reference="answer", against="reference"), Logs()
    try:
        columns = {"answer": [blank, "quality=1"], **logs.columns()}
        assert reward(["One?", "Two?"], ["quality=2", "quality=2"], **columns) == [None, 1.0]
    finally:
        asyncio.run(reward._source.aclose())
    assert logs.extra["scope_judge"] == ["unreferenced", "rewarded"]


@pytest.mark.parametrize("extra_info", [None, {}, {"question": " "}, {"prompt": "Which?"}])
def test_verl_is_told_where_the_question_belongs(extra_info: Any) -> None:
    with pytest.raises(ValueError, match="extra_info has no 'question'"):
        asyncio.run(compute_score("pairs", "a", "b", extra_info))


@pytest.mark.parametrize("reference", [None, "", "  "])
def test_verl_is_told_that_the_reference_is_missing(reference: Any) -> None:
    with pytest.raises(ValueError, match=r"reward_model\.ground_truth is empty"):
        asyncio.run(compute_score("pairs", "a", reference, {"question": "Which?"}))


def test_verl_takes_a_question_with_another_name_and_messages(url: str) -> None:
    async def scored() -> dict[str, float]:
        options: dict[str, Any] = {"url": url, "alpha": None}
        asked = {"prompt": [{"role": "user", "content": "Which?"}]}
        try:
            return await compute_score(
                "pairs", "quality=1", "quality=0", asked, question_key="prompt", **options
            )
        finally:
            await shared_source(**options).aclose()

    assert asyncio.run(scored())["score"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        ({"reward_key": None, "group_rm": False}, sample("a", "b"), "--reward-key reward"),
        ({"group_rm": False}, sample("a", None), "--label-key"),
        ({"group_rm": True}, [[sample("a", "b")], sample("a", "b")], "several samples"),
        (
            {"group_rm": True},
            [sample("a", "b"), SimpleNamespace(**{**vars(sample("a", "b")), "prompt": "Else?"})],
            "different prompts",
        ),
    ],
)
def test_slime_is_told_what_is_missing(arguments: Any, given: Any, message: str) -> None:
    args = SimpleNamespace(**{"reward_key": "reward", **arguments})
    with pytest.raises(ValueError, match=message):
        asyncio.run(custom_rm(args, given))


def test_several_samples_of_one_rollout_are_compared_with_their_labels(url: str) -> None:
    both = [sample("quality=1", "quality=0"), sample("quality=0", "quality=1")]
    found = asyncio.run(called_by_slime(both, {"url": url, "alpha": None}, group_rm=False))
    assert [each["reward"] for each in found] == [1.0, -1.0]


def rewarded(group: int, reward: float | None) -> SimpleNamespace:
    """A sample of slime after the reward function."""
    given = {
        "reward": reward or 0.0,
        **flags_of(Reward(reward, "abstained" if reward is None else None)),
    }
    found = SimpleNamespace(group_index=group, reward=given)
    found.get_reward_value = lambda args: given["reward"]
    return found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # By hand: the mean of (1, -1, none) is 0 and the deviation sqrt(2); that of (1, 0.5) is
        # 0.75 and sqrt(1/8).
        ({}, [0.70710678, -0.70710678, 0.0, 0.70710678, 0.0, 0.0, -0.70710678]),
        ({"grpo_std_normalization": False}, [1.0, -1.0, 0.0, 0.25, 0.0, 0.0, -0.25]),
        (
            {"advantage_estimator": "reinforce_plus_plus_baseline"},
            [1.0, -1.0, 0.0, 0.25, 0.0, 0.0, -0.25],
        ),
        ({"advantage_estimator": "ppo"}, [1.0, -1.0, 0.0, 1.0, 0.0, 1.0, 0.5]),
        ({"rewards_normalization": False}, [1.0, -1.0, 0.0, 1.0, 0.0, 1.0, 0.5]),
    ],
)
def test_slimes_baseline_leaves_out_samples_without_a_reward(
    arguments: dict[str, Any], expected: list[float]
) -> None:
    usual = {
        "advantage_estimator": "grpo",
        "grpo_std_normalization": True,
        "rewards_normalization": True,
    }
    rewards = [(0, 1.0), (0, -1.0), (0, None), (1, 1.0), (1, None), (2, 1.0), (1, 0.5)]
    samples = [rewarded(*each) for each in rewards]
    raw, normalized = normalized_rewards(slime_arguments({}, **{**usual, **arguments}), samples)
    assert raw == [1.0, -1.0, 0.0, 1.0, 0.0, 1.0, 0.5]
    assert normalized == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("module", ["trl", "verl", "slime"])
def test_an_adapter_imports_no_framework_before_it_is_used(module: str) -> None:
    program = (
        f"import sys, scope_judge.{module}\n"
        "frameworks = {'trl', 'verl', 'slime', 'torch', 'accelerate', 'transformers'}\n"
        "found = frameworks & set(sys.modules)\n"
        "assert not found, found\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("failures", ["raise", "none"])
def test_a_group_of_more_comparisons_than_a_request_may_have_is_refused_with_the_remedy(
    failures: Any,
) -> None:
    with served(calibrated=False, max_pending=20) as url:
        reward = ScopeReward(url=url, alpha=None, failures=failures)
        try:
            with pytest.raises(RequestError, match='"opponents": k'):
                reward(["One?"] * 6, [f"quality={i}" for i in range(6)])
            two = reward(["One?"] * 4 + ["Two?"] * 4, [f"quality={i}" for i in range(8)])
        finally:
            asyncio.run(reward._source.aclose())
    # By hand: the response i of 4 has won i and lost 3 - i comparisons.
    assert two == pytest.approx([(2 * i - 3) / 3 for i in (*range(4), *range(4))])
