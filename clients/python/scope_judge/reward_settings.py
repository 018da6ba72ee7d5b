"""The settings of the adapters for trainers, from arguments or the environment."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, cast, get_args

from scope_judge.comparisons import GroupRule, checked

Failures = Literal["raise", "none"]

# Option -> variable that is read if the option is not given.
VARIABLES: Mapping[str, str] = {
    "alpha": "SCOPE_REWARD_ALPHA",
    "guarantee": "SCOPE_REWARD_GUARANTEE",
    "delta": "SCOPE_REWARD_DELTA",
    "calibration": "SCOPE_REWARD_CALIBRATION",
    "opponents": "SCOPE_REWARD_OPPONENTS",
    "reward": "SCOPE_REWARD_KIND",
    "empty": "SCOPE_REWARD_EMPTY",
    "thoughts": "SCOPE_REWARD_THOUGHTS",
    "overlong": "SCOPE_REWARD_OVERLONG",
    "min_accepted": "SCOPE_REWARD_MIN_ACCEPTED",
    "failures": "SCOPE_REWARD_FAILURES",
    "timeout_s": "SCOPE_REWARD_TIMEOUT_S",
    "patience_s": "SCOPE_REWARD_PATIENCE_S",
    "stop_after_s": "SCOPE_REWARD_STOP_AFTER_S",
}


class Connection(TypedDict, total=False):
    """Arguments of the client."""

    url: str | None
    api_key: str | None
    timeout_s: float
    patience_s: float | None


class RewardOptions(GroupRule, Connection, total=False):
    """Options of every adapter.

    An option that is left out comes from its variable in the environment, such as
    SCOPE_REWARD_ALPHA, or else is the service's default. `failures` says what happens if the
    service does not answer: "raise" raises the error, and "none" gives no reward. After
    `stop_after_s` in which judging was suspended or unanswered, UnavailableError is raised in any
    case.
    """

    failures: Failures
    stop_after_s: float


def resolved(
    options: RewardOptions | Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> RewardOptions:
    """The options with those of the environment; the service checks the values of the rule."""
    given = checked(options, RewardOptions)
    _check_names(environment)
    for name, variable in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if name not in given and text:
            given[name] = _parsed(name, text, variable)
    failures = given.get("failures", "raise")
    if failures not in get_args(Failures):
        raise ValueError(f"failures must be raise or none, and is {str(failures)[:40]!r}")
    return cast(RewardOptions, given)


def _check_names(environment: Mapping[str, str]) -> None:
    """Refuses a variable whose name is misspelled, so that no setting is silently left out."""
    for name in environment:
        if name.startswith("SCOPE_REWARD_") and name not in VARIABLES.values():
            of_client = name.replace("REWARD_", "")
            known = of_client in ("SCOPE_URL", "SCOPE_API_KEY")
            near = [of_client] if known else get_close_matches(name, VARIABLES.values(), 1)
            raise ValueError(
                f"there is no variable {name}" + (f"; did you mean {near[0]}?" if near else "")
            )


def _parsed(name: str, text: str, variable: str) -> Any:
    """The value of a variable."""
    if name == "alpha" and text == "null":
        return None
    if name in ("alpha", "delta", "timeout_s", "patience_s", "stop_after_s"):
        return _number(float, text, variable)
    if name == "opponents" and text != "all":
        return _number(int, text, variable)
    if name == "min_accepted":
        return _number(float if "." in text else int, text, variable)
    return text


def _number(kind: type[int] | type[float], text: str, variable: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{variable} must be a number, got {text[:40]!r}") from None
