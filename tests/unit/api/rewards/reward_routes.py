"""Every way to ask for rewards, with one response and its opponent, and how to read the answer."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from app.core.errors import PromptTooLongError
from app.judges.engines.scripted import by_quality
from app.ports import LabelLogits, Prompt, PromptError
from tests.unit.clients.adapters.scenes import QUESTION, Found

PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
FLAGS = ("suspended", "infeasible", "abstained", "failed", "tied", "empty")
REASONS = (*FLAGS, "unopposed")


def script(prompt: Prompt) -> LabelLogits | PromptError:
    """Judges by quality; some words in a text cause its errors."""
    if "ENDLESS" in prompt.user:
        return PromptTooLongError("the prompt has 9 tokens and the limit is 8")
    if "BROKEN" in prompt.user:
        return LabelLogits(math.nan, math.nan)
    return by_quality(prompt)


class RewardRoute(NamedTuple):
    """One route: the body for a response and its opponent, and the reward in its answer.

    `read` checks that no reward is what the route's contract says. The options are in the URL if
    `in_query`.
    """

    path: str
    body: Callable[[str, str], dict[str, Any]]
    read: Callable[[dict[str, Any]], Found]
    in_query: bool


def _group(a: str, b: str) -> dict[str, Any]:
    return {"question": QUESTION, "responses": [a, [{"role": "assistant", "content": b}]]}


def _read_row(answer: dict[str, Any]) -> Found:
    number, reason = answer["rewards"][0], answer["reasons"][0]
    assert (number is None) == (reason is not None)
    assert answer["accepted"][0] == 0 or number is not None
    assert bool(answer["errors"]) == (reason == "failed")
    return Found(number, reason)


def _read_flags(number: float, flags: dict[str, Any]) -> Found:
    """Framework's number and flags -> reward; a number that is a reward has no flag."""
    reasons = [name for name in REASONS if flags.get(name)]
    assert all(flags[name] in (0, 1) for name in FLAGS)
    if not reasons:
        return Found(number, None)
    (reason,) = reasons
    assert number == 0.0
    return Found(None, reason)


def _read_openrlhf(answer: dict[str, Any]) -> Found:
    assert set(answer) == {"rewards", "scores", "extra_logs"}
    (number,), (score,) = answer["rewards"], answer["scores"]
    assert 0.0 <= score == (number + 1) / 2 <= 1.0
    assert set(answer["extra_logs"]) == set(FLAGS)
    return _read_flags(number, {name: value for name, (value,) in answer["extra_logs"].items()})


ROUTES: dict[str, RewardRoute] = {
    "group": RewardRoute("/rewards/group", _group, _read_row, in_query=False),
    "groups": RewardRoute(
        "/rewards/groups",
        lambda a, b: {"groups": [_group(a, b)]},
        lambda answer: _read_row(answer["groups"][0]),
        in_query=False,
    ),
    "reference": RewardRoute(
        "/rewards/reference",
        lambda a, b: {"question": QUESTION, "responses": [a], "reference": b},
        _read_row,
        in_query=False,
    ),
    "OpenRLHF": RewardRoute(
        "/rewards/openrlhf",
        lambda a, b: {"query": [f"{PROMPT}{a}<|im_end|>"], "prompts": [PROMPT], "labels": [b]},
        _read_openrlhf,
        in_query=True,
    ),
}
PATHS = tuple(route.path for route in ROUTES.values())


def request(route: RewardRoute, a: str, b: str, **options: Any) -> dict[str, Any]:
    """Arguments of `client.post` for a response, its opponent and options such as alpha."""
    body = route.body(a, b)
    if not route.in_query:
        return {"url": route.path, "json": {**body, **options}}
    written = {key: "null" if value is None else value for key, value in options.items()}
    return {"url": route.path, "json": body, "params": written}
