"""Records the transcript, and compares it with the recorded one."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.transcript.numbers import evaluation, leaderboard, thresholds
from tests.transcript.requests import all_requests
from tests.transcript.walk import Walk, service

EXPECTED = Path(__file__).with_name("expected.jsonl")
# One meant difference a line: a pattern of "name of the answer/field/field", and why.
MEANT = Path(__file__).with_name("meant.json")
FIXED_PATHS = (
    *("/judge", "/judge/batch", "/calibrate", "/v1/systemone", "/v1/decisions", "/calibrations"),
    *("/rewards/group", "/rewards/groups", "/rewards/reference", "/rewards/openrlhf"),
    "/calibrations/{name}",
    *(f"/calibrations/{{name}}/{part}" for part in ("versions", "rollback", "examples", "pool")),
    *(f"/calibrations/{{name}}/{part}" for part in ("next", "monitor", "absorb", "resume")),
    *("/audits", "/audits/labels", "/healthz", "/readyz", "/info", "/usage"),
)
_GONE = "(nothing)"
# Relative, for numbers of which another order of additions may change the last digit.
_TOLERANCE = 3e-5


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One place at which the answers differ.

    Args:
        place: Name of the answer and its fields, separated by slashes.
        before: The recorded value.
        after: The value now.
        reason: Why it is meant; empty if it is not.
    """

    place: str
    before: Any
    after: Any
    reason: str

    def __str__(self) -> str:
        said = f"{self.place}: {_short(self.before)} -> {_short(self.after)}"
        return f"{said}   [{self.reason}]" if self.reason else said


def transcript(*, fast: bool) -> dict[str, Any]:
    """Asks everything; name -> answer."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with service(folder) as walk:
            answers = _routes(walk)
            all_requests(walk)
            answers |= walk.answers
        answers |= thresholds()
        if not fast:
            answers |= leaderboard(folder) | evaluation(folder)
    return answers


def record(answers: Mapping[str, Any]) -> None:
    """Writes the answers as the expected ones, one a line."""
    lines = (json.dumps([name, answer], sort_keys=True) for name, answer in answers.items())
    EXPECTED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compare(answers: Mapping[str, Any]) -> list[Difference]:
    """Differences of the recorded answers to these; answers of slow parts may be missing."""
    meant: dict[str, str] = json.loads(MEANT.read_text(encoding="utf-8"))
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    expected: dict[str, Any] = dict(json.loads(line) for line in lines)
    parts = {name.split()[0] for name in answers}
    differences = []
    for name, before in expected.items():
        if name.split()[0] in parts:
            for place, was, now in _places(name, before, answers.get(name, _GONE)):
                reason = next((why for at, why in meant.items() if fnmatchcase(place, at)), "")
                differences.append(Difference(place=place, before=was, after=now, reason=reason))
    return differences


def _places(place: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Places at which two values differ. A new field of an object is no difference."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, part in before.items():
            yield from _places(f"{place}/{name}", part, after.get(name, _GONE))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _places(f"{place}/{number}", one, other)
    elif not _alike(before, after):
        yield place, before, after


def _alike(before: Any, after: Any) -> bool:
    if isinstance(before, float) and isinstance(after, float | int):
        return abs(before - after) <= _TOLERANCE * max(abs(before), abs(after))
    return bool(before == after)


def _routes(walk: Walk) -> dict[str, Any]:
    """The routes and the fields of their requests, from the service's own description."""
    document = walk.send("start description", "GET", "/openapi.json")
    answers = {}
    for path in FIXED_PATHS:
        operations = document["paths"].get(path, {})
        for method, operation in operations.items():
            answers[f"route {method.upper()} {path}"] = {
                "parameters": {one["name"]: one["in"] for one in operation.get("parameters", [])},
                "body": dict(_fields(document, operation.get("requestBody", {}))),
            }
    return answers


def _fields(document: Any, part: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Fields of a request's body with their paths, and whether each is required."""
    if "content" in part:
        part = part["content"]["application/json"]["schema"]
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        part = document["components"]["schemas"][name]
    for other in part.get("anyOf", []) + part.get("oneOf", []) + part.get("allOf", []):
        yield from _fields(document, other, path)
    if "items" in part:
        yield from _fields(document, part["items"], f"{path}[]")
    for name, field in part.get("properties", {}).items():
        where = f"{path}.{name}".removeprefix(".")
        yield where, name in part.get("required", [])
        yield from _fields(document, field, where)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else text[:160] + "..."
