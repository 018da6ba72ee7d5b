"""Every way to ask for rewards, with one response and its opponent, and how to read the answer."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from app.core.errors import PromptTooLongError
from app.engines.scripted import by_quality
from app.ports import LabelLogits, Prompt, PromptError

QUESTION = "Which?"
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
REASONS = ("abstained", "failed", "tied", "empty", "unopposed")


def script(prompt: Prompt) -> LabelLogits | PromptError:
    """Judges by quality; some words in a text cause its errors."""
    if "ENDLESS" in prompt.user:
        return PromptTooLongError("the prompt has 9 tokens and the limit is 8")
    if "BROKEN" in prompt.user:
        return LabelLogits(math.nan, math.nan)
    return by_quality(prompt)


class Reward(NamedTuple):
    """The reward of the response: a number, or the reason why there is none."""

    number: float | None
    reason: str | None


class Door(NamedTuple):
    """One route.

    Args:
        path: Its path.
        body: Response and opponent -> body of the request.
        read: Answer -> reward; checks that no reward is what the route's contract says.
        in_query: Whether the options of the reward are in the URL.
    """

    path: str
    body: Callable[[str, str], dict[str, Any]]
    read: Callable[[dict[str, Any]], Reward]
    in_query: bool


def message(text: str) -> dict[str, Any]:
    """An object of the Responses API."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return {"output": [thought, said]}


def _group(a: str, b: str) -> dict[str, Any]:
    return {"question": QUESTION, "responses": [a, [{"role": "assistant", "content": b}]]}


def _read_row(answer: dict[str, Any]) -> Reward:
    number, reason = answer["rewards"][0], answer["reasons"][0]
    assert (number is None) == (reason is not None)
    assert (answer["accepted"][0] == 0) == (number is None)
    assert bool(answer["errors"]) == (reason == "failed")
    return Reward(number, reason)


def _read_flags(number: float, flags: dict[str, Any]) -> Reward:
    """Framework's number and flags -> reward; a number that is a reward has no flag."""
    reasons = [name for name in REASONS if flags.get(name)]
    assert all(flags[name] in (0, 1) for name in ("abstained", "failed", "tied", "empty"))
    if not reasons:
        return Reward(number, None)
    (reason,) = reasons
    assert number == 0.0
    return Reward(None, reason)


def _read_openrlhf(answer: dict[str, Any]) -> Reward:
    assert set(answer) == {"rewards", "scores", "extra_logs"}
    (number,), (score,) = answer["rewards"], answer["scores"]
    assert 0.0 <= score == (number + 1) / 2 <= 1.0
    assert set(answer["extra_logs"]) == {"abstained", "failed", "tied", "empty"}
    return _read_flags(number, {name: value for name, (value,) in answer["extra_logs"].items()})


def _read_slime(answer: dict[str, Any]) -> Reward:
    assert set(answer) == {"reward", "abstained", "failed", "tied", "empty"}
    return _read_flags(answer["reward"], answer)


def _read_verify(answer: dict[str, Any]) -> Reward:
    found = _read_flags(answer["reward"], answer)
    assert answer["mask_sample"] == (found.number is None) == (answer["failure_reason"] is not None)
    # The rest is the request.
    assert answer["responses_create_params"] == {"input": QUESTION}
    assert answer["task_index"] == 3
    return found


def _read_compare(answer: dict[str, Any]) -> Reward:
    assert set(answer) == {"rewards", "comparison_results", "metrics"}
    assert all(isinstance(value, float) for value in answer["metrics"].values())
    of_both = {name: answer["metrics"][name] for name in REASONS}
    reasons = [name for name, number in of_both.items() if number]
    # Where the pair has no comparison, both responses have the same reason.
    if not reasons:
        return Reward(answer["rewards"][0], None)
    if answer["metrics"]["unopposed"]:
        reasons.remove("unopposed")
    (reason,) = reasons
    assert answer["rewards"] == [0.0, 0.0]
    return Reward(None, reason)


DOORS: dict[str, Door] = {
    "group": Door("/rewards/group", _group, _read_row, in_query=False),
    "groups": Door(
        "/rewards/groups",
        lambda a, b: {"groups": [_group(a, b)]},
        lambda answer: _read_row(answer["groups"][0]),
        in_query=False,
    ),
    "reference": Door(
        "/rewards/reference",
        lambda a, b: {"question": QUESTION, "responses": [a], "reference": b},
        _read_row,
        in_query=False,
    ),
    "OpenRLHF": Door(
        "/rewards/openrlhf",
        lambda a, b: {"query": [f"{PROMPT}{a}<|im_end|>"], "prompts": [PROMPT], "labels": [b]},
        _read_openrlhf,
        in_query=True,
    ),
    "slime": Door(
        "/rewards/slime",
        lambda a, b: {"prompt": PROMPT, "response": f"{a}<|im_end|>", "label": b},
        _read_slime,
        in_query=True,
    ),
    "NeMo Gym verify": Door(
        "/rewards/nemo-gym/verify",
        lambda a, b: {
            "responses_create_params": {"input": QUESTION},
            "response": message(a),
            "ground_truth": b,
            "task_index": 3,
        },
        _read_verify,
        in_query=True,
    ),
    "NeMo Gym compare": Door(
        "/rewards/nemo-gym/compare",
        lambda a, b: {
            "conversation_history": [{"role": "user", "content": QUESTION}],
            "response_objs": [message(a), message(b)],
        },
        _read_compare,
        in_query=True,
    ),
}
PATHS = tuple(door.path for door in DOORS.values())


def request(door: Door, a: str, b: str, **options: Any) -> dict[str, Any]:
    """Arguments of `client.post` for a response, its opponent and options such as alpha."""
    body = door.body(a, b)
    if not door.in_query:
        return {"url": door.path, "json": {**body, **options}}
    written = {key: "null" if value is None else value for key, value in options.items()}
    return {"url": door.path, "json": body, "params": written}
