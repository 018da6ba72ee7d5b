"""Sends the scenes through the frameworks, and reads what each of them has recorded."""

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from scope_judge.reward_settings import VARIABLES
from scope_judge.reward_source import REASONS
from tests.drills.doors.training import LIMIT_S, ROOT, environment
from tests.unit.clients.adapters.scenes import QUESTION, Found

ERROR = Found(None, "error")


class Asked(NamedTuple):
    """A response and its opponent, and the options of the adapter."""

    response: str
    opponent: str
    options: dict[str, Any]
    question: str = QUESTION


class Framework(NamedTuple):
    """How a framework is asked, and how its record is read.

    Args:
        module: Module of this package that runs in the framework's environment.
        scene: Asked -> the module's input.
        read: The module's output -> reward; raises AssertionError if it breaks the contract.
        takes_failures: Whether it has the adapter's option `failures`.
    """

    module: str
    scene: Callable[[Asked], dict[str, Any]]
    read: Callable[[Any], Found]
    takes_failures: bool = True


class Answers(NamedTuple):
    """The versions of the packages, and the reward in each scene."""

    versions: dict[str, str]
    found: list[Found]


def ask(name: str, python: str, asked: Sequence[Asked]) -> Answers:
    """The rewards that a framework has recorded."""
    framework = FRAMEWORKS[name]
    ended = subprocess.run(
        [python, "-m", f"tests.drills.doors.{framework.module}"],
        input="\n".join(json.dumps(framework.scene(each)) for each in asked),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert ended.returncode == 0, ended.stderr
    # Some frameworks log to stdout.
    told = json.loads(ended.stdout.strip().splitlines()[-1])
    return Answers(told["versions"], [framework.read(each) for each in told["scenes"]])


def _flagged(number: float, flags: dict[str, float]) -> Found:
    """A number with its flags; no reward must be 0 with one flag."""
    reasons = [name for name in REASONS if flags.get(name)]
    if not reasons:
        return Found(number, None)
    assert (number, len(reasons)) == (0.0, 1)
    return Found(None, reasons[0])


def _pairs(asked: Asked) -> dict[str, Any]:
    pairs = [[asked.response, asked.opponent]]
    return {"question": asked.question, "pairs": pairs, "options": asked.options}


def _of_environment(asked: Asked) -> dict[str, Any]:
    variables = {"url": "SCOPE_URL", **VARIABLES}
    given = {variables[name]: _written(value) for name, value in asked.options.items()}
    answers = [asked.response, asked.opponent]
    return {"question": asked.question, "answers": answers, "environment": given}


def _in_url(asked: Asked) -> dict[str, Any]:
    own = ("url", "patience_s", "failures")
    query = urlencode({k: _written(v) for k, v in asked.options.items() if k not in own})
    url = f"{asked.options['url']}/rewards/openrlhf?{query}"
    return {**_pairs(asked), "url": url}


def _written(value: Any) -> str:
    return "null" if value is None else str(value)


def _read_verifiers(told: Any) -> Found:
    if not told["ok"]:
        # verifiers fails the whole episode, and records no reward.
        assert told["errors"]
        assert all(trace["reward"] == "absent" for trace in told["traces"])
        return ERROR
    first = told["traces"][0]
    reasons = [name for name in REASONS if first["metrics"][f"scope_judge/{name}"]]
    assert (first["reward"] is None) == (len(reasons) == 1) == (not first["trainable"])
    return Found(first["reward"], reasons[0] if reasons else None)


def _read_inspect(told: Any) -> Found:
    (sample,) = told["samples"]
    if sample["error"] is not None:
        assert sample["value"] is None
        assert not sample["unscored"]
        return ERROR
    assert (told["scored"], told["unscored"]) == ((0, 1) if sample["unscored"] else (1, 0))
    if sample["unscored"]:
        return Found(None, sample["reason"])
    # A soft score is p_bar.
    known = {"C": 1.0, "I": -1.0}
    value = sample["value"]
    return Found(known[value] if value in known else 2.0 * value - 1.0, None)


def _read_verl(told: Any) -> Found:
    (row,) = told
    if isinstance(row, str):
        return ERROR
    flags = row["reward_extra_info"]
    assert set(flags) == {"score", *REASONS}
    assert flags["score"] == row["reward_score"]
    return _flagged(row["reward_score"], flags)


def _read_openrlhf(told: Any) -> Found:
    (row,) = told
    if row["reward"] is None:
        assert row["scores"] is None
        return ERROR
    flags = {name: values[0] for name, values in row["extra_logs"].items()}
    return _flagged(row["reward"][0], flags)


FRAMEWORKS = {
    "verifiers": Framework("in_verifiers", _of_environment, _read_verifiers),
    "inspect": Framework("in_inspect", _pairs, _read_inspect),
    "verl": Framework("in_verl", _pairs, _read_verl),
    "openrlhf": Framework("in_openrlhf", _in_url, _read_openrlhf, takes_failures=False),
}
