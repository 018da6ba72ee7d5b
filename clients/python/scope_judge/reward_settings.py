"""The settings of the adapters for trainers, from arguments or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypedDict, cast, get_args, get_type_hints

from scope_judge.comparisons import GroupRule, ReferenceRule, checked

Failures = Literal["raise", "none"]
_STOP_AFTER_S = 3600.0

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
    "comparisons_file": "SCOPE_REWARD_COMPARISONS_FILE",
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
    case. Each judged comparison is appended to `comparisons_file` as a line of JSON, with its
    texts.
    """

    failures: Failures
    stop_after_s: float
    comparisons_file: str | Path | None


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """The settings of one adapter.

    Args:
        connection: Arguments of the client.
        rule: How comparisons become rewards.
        failures: Whether an unanswered request is raised, or gives no rewards.
        stop_after_s: Longest time without a judgment.
        comparisons_file: File for the comparisons; None to write none.
    """

    connection: Connection
    rule: GroupRule
    failures: Failures = "raise"
    stop_after_s: float = _STOP_AFTER_S
    comparisons_file: Path | None = None

    @classmethod
    def of(
        cls, options: RewardOptions | Mapping[str, Any], environment: Mapping[str, str] = os.environ
    ) -> "RewardSettings":
        """The settings from options, or else from the environment."""
        given = checked(options, RewardOptions)
        _check_names(environment)
        for name, variable in VARIABLES.items():
            text = environment.get(variable, "").strip()
            if name not in given and text:
                given[name] = _parsed(name, text, variable)
        # The service checks the values of the rule.
        failures = given.pop("failures", "raise")
        if failures not in get_args(Failures):
            raise ValueError(f"failures must be raise or none, and is {str(failures)[:40]!r}")
        stop_after_s = given.pop("stop_after_s", _STOP_AFTER_S)
        file = given.pop("comparisons_file", None)
        if file is not None:
            given["comparisons"] = True
        connection = {name: given.pop(name) for name in _CONNECTION if name in given}
        return cls(
            cast(Connection, connection),
            cast(GroupRule, given),
            failures,
            stop_after_s,
            file and Path(file),
        )

    @property
    def reference_rule(self) -> ReferenceRule:
        """The rule without the number of opponents: there is one, the reference."""
        return cast(
            ReferenceRule,
            {k: v for k, v in self.rule.items() if k not in ("opponents", "min_accepted")},
        )


_CONNECTION = tuple(get_type_hints(Connection))


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
