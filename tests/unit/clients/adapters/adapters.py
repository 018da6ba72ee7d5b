"""Every adapter that needs no framework, as a function of one response and its opponent.

Each checks the framework's contract: what a reward is, and what no reward is.
"""

import asyncio
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from scope_judge import trl
from scope_judge.reward_source import REASONS, shared_source
from scope_judge.slime import custom_rm
from scope_judge.verl import compute_score
from tests.unit.clients.adapters.scenes import QUESTION, Found

Adapter = Callable[[str, str, dict[str, Any]], Found]

PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


def said(text: str) -> list[dict[str, str]]:
    """A completion as conversational data sets have it."""
    return [{"role": "assistant", "content": text}]


class Logs:
    """Notes what a reward function gives to TRL to log."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, list[Any]] = {}

    def columns(self) -> dict[str, Any]:
        """The columns of TRL, as its trainer passes them."""
        return {
            "completion_ids": [[1], [2]],
            "trainer_state": None,
            "log_metric": self.metrics.__setitem__,
            "log_extra": self.extra.__setitem__,
        }


def of_trl(response: str, opponent: str, options: dict[str, Any]) -> Found:
    # Failures are those of the first batch, as in a training.
    reward, logs = trl.ScopeReward(check=False, **options), Logs()
    try:
        values = reward([QUESTION] * 2, [response, opponent], **logs.columns())
    finally:
        asyncio.run(reward._source.aclose())
    return _of_trl(values, logs)


def _of_trl(values: list[float | None], logs: Logs) -> Found:
    assert len(values) == 2
    reasons = logs.extra["scope_judge"]
    for value, reason in zip(values, reasons, strict=True):
        assert (value is None) == (reason != "rewarded")
    shares = {name: reasons.count(name) / 2 for name in REASONS}
    assert logs.metrics == {f"scope_judge/{name}": share for name, share in shares.items()}
    return Found(values[0], None if reasons[0] == "rewarded" else reasons[0])


def of_verl(response: str, opponent: str, options: dict[str, Any]) -> Found:
    async def called() -> dict[str, float]:
        try:
            # As verl's reward managers call it, with the kwargs of its configuration.
            return await compute_score(
                data_source="pairs",
                solution_str=response,
                ground_truth=opponent,
                extra_info={"question": QUESTION, "num_turns": None},
                **options,
            )
        finally:
            await shared_source(**options).aclose()

    found = asyncio.run(called())
    assert set(found) == {"score", *REASONS}
    return flagged(found.pop("score"), found)


def flagged(number: float, flags: dict[str, float]) -> Found:
    """A number and its flags as a reward; no reward must be 0 with exactly one flag."""
    assert math.isfinite(number)
    reasons = [name for name in REASONS if flags[name]]
    if not reasons:
        return Found(number, None)
    assert (number, [flags[name] for name in reasons]) == (0.0, [1])
    return Found(None, reasons[0])


def sample(response: str, label: str | None, **fields: Any) -> SimpleNamespace:
    """A sample with the fields of slime's `Sample` that matter here."""
    given = {"prompt": PROMPT, "response": f"{response}<|im_end|>", "label": label}
    return SimpleNamespace(**given, remove_sample=False, reward=None, group_index=0, **fields)


def of_slime(response: str, opponent: str, options: dict[str, Any]) -> Found:
    one = sample(response, opponent)
    found = asyncio.run(called_by_slime(one, options, group_rm=False))
    return _of_slime(one, found)


def of_slime_group(response: str, opponent: str, options: dict[str, Any]) -> Found:
    both = [sample(response, None), sample(opponent, None)]
    found = asyncio.run(called_by_slime(both, options, group_rm=True))
    first, _ = (_of_slime(*pair) for pair in zip(both, found, strict=True))
    return first


def slime_arguments(options: dict[str, Any], **fields: Any) -> SimpleNamespace:
    """slime's arguments with the adapter's options, as a configuration file sets them."""
    prefixed = {f"scope_{name}": value for name, value in options.items()}
    return SimpleNamespace(reward_key="reward", **fields, **prefixed)


async def called_by_slime(samples: Any, options: dict[str, Any], *, group_rm: bool) -> Any:
    try:
        return await custom_rm(slime_arguments(options, group_rm=group_rm), samples)
    finally:
        await shared_source(rendered=True, **options).aclose()


def _of_slime(one: SimpleNamespace, found: dict[str, float]) -> Found:
    reward = flagged(found["reward"], found)
    assert one.remove_sample == (reward.number is None)
    return reward


ADAPTERS: dict[str, Adapter] = {
    "TRL": of_trl,
    "verl": of_verl,
    "slime": of_slime,
    "slime, group": of_slime_group,
}
