"""Real requests to a service with a scripted judge, and its answers, for docs/reference."""

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import httpx

from app.api.keys import Keys
from app.judges.engines.scripted import ScriptedEngine, logits_of_gap
from app.ports import LabelLogits, Prompt
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys

# Width of a line of JSON.
_WIDTH = 96
_MORE = "..."
# Texts are cut after this many characters.
_LONGEST = 70
# Fields that the page shows of a verdict and a set.
_VERDICT = "verdict p_bar threshold"
_SET = "name version n"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_DIGITS = re.compile(r"\b[0-9a-f]{32,}\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One request with its answer.

    Args:
        target: Path with its query.
        body: The request's body; None without one.
        answer: Body of the answer; None without one.
    """

    target: str
    body: Any
    answer: Any


def examples() -> dict[str, Example]:
    """Sends a request to the routes whose answers the page shows; route -> example.

    Times, digests and ids are replaced by fixed ones, so each call returns the same examples.
    """
    return asyncio.run(_examples())


async def _examples() -> dict[str, Example]:
    given = {"audit_rate": 1.0, "audit_texts": True}
    with TemporaryDirectory() as folder:
        roles = ["judge", "calibrate", "label", "admin"]
        keys = Keys(write_keys(Path(folder) / "keys.json", entry("analyst", roles)))
        # The ids of the audits are the same in each run.
        with patch.object(secrets, "token_bytes", bytes):
            return await _sent(keys, **given)


async def _sent(keys: Keys, **given: Any) -> dict[str, Example]:
    async with client_of(ScriptedEngine(_adds), keys=keys, **given) as client:
        client.headers.update(header_of("analyst"))
        recorder = _Recorder(client)
        await _judge(recorder)
        await _label(recorder)
        await _pool(recorder)
        return recorder.examples


class _Recorder:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}
        self.examples: dict[str, Example] = {}

    async def send(
        self, method: str, path: str, body: Any = None, *, query: str = "", show: str = ""
    ) -> Any:
        """Sends a request, keeps it as the example of its route, and returns the answer.

        Args:
            method: HTTP method.
            path: Path with `{name}` for the calibration set.
            body: The request's body; None without one.
            query: The query with its question mark.
            show: Names of the fields of the answer to show; all if empty.
        """
        target = path.replace("{name}", "default") + query
        response = await self._client.request(method, target, json=body)
        answer = response.json() if response.content else None
        if response.is_error:
            raise RuntimeError(f"{method} {target}: {answer}")
        self.examples[f"{method} {path}"] = Example(
            target=target,
            body=self._steady(body),
            answer=self._steady(answer, frozenset(show.split())),
        )
        return answer

    def _steady(self, value: Any, show: frozenset[str] = frozenset()) -> Any:
        """The value with fixed times, digests and ids, short numbers and short lists.

        Args:
            value: The value.
            show: Names of the fields to keep in objects that have any of them.
        """
        match value:
            case dict():
                names = show & value.keys() or value.keys()
                kept_fields = {
                    key: self._steady(item, show) for key, item in value.items() if key in names
                }
                return kept_fields | ({_MORE: _MORE} if len(names) < len(value) else {})
            case list():
                kept = [self._steady(item, show) for item in value[: _shown_items(value)]]
                return kept + [_MORE] * (len(value) > len(kept))
            case float():
                return float(f"{value:.5g}")
            case str():
                text = _DIGITS.sub(self._named, _TIME.sub("2026-11-23T09:00:00Z", value))
                return text if len(text) <= _LONGEST else text[:_LONGEST] + _MORE
            case _:
                return value

    def _named(self, match: re.Match[str]) -> str:
        digits = match[0]
        number = len(self._names)
        name = hashlib.sha512(str(number).encode()).hexdigest()[: len(digits)]
        return self._names.setdefault(digits, name)


def _shown_items(values: list[Any]) -> int:
    """Number of items of a list that the page shows."""
    is_short = not isinstance(values[0], dict | list) and len(str(values[0])) < 30 if values else 0
    return 4 if is_short else 1


def _adds(prompt: Prompt) -> LabelLogits:
    """Prefers the right sum, surer of some sums than of others."""
    sums = re.findall(r"(\d+) \+ (\d+)", prompt.user)
    if not sums:
        # The test pair of the readiness.
        return logits_of_gap(1.0)
    first, second = sums[-1]
    shown_a, _ = re.findall(r"\d+", prompt.user)[-2:]
    gap = 0.5 + int(hashlib.sha256(first.encode()).hexdigest()[:4], 16) / 2**14
    return logits_of_gap(gap if int(shown_a) == int(first) + int(second) else -gap)


def _pair(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "question": f"What is {number} + 27?",
        "response_a": str(number + 27),
        "response_b": str(number + 28),
        **fields,
    }


async def _judge(recorder: _Recorder) -> None:
    labeled = [_pair(number, label="A") for number in range(100, 160)]
    shown = f"{_SET} thresholds alpha guarantee threshold coverage added failed"
    await recorder.send("POST", "/calibrate", {"examples": labeled}, show=shown)
    await recorder.send("POST", "/judge", _pair(48, alpha=0.1))
    batch = {"comparisons": [_pair(49), _pair(50)]}
    await recorder.send("POST", "/judge/batch", batch, show=f"results {_VERDICT}")
    group = {"question": "What is 51 + 27?", "responses": ["78", "79"]}
    shown = "rewards reasons accepted compared"
    await recorder.send("POST", "/rewards/group", group, show=shown)
    shown = "rewards reasons"
    await recorder.send("POST", "/rewards/reference", {**group, "reference": "80"}, show=shown)


async def _label(recorder: _Recorder) -> None:
    audits = await recorder.send("GET", "/audits", query="?status=open")
    labels = [{"id": audit["id"], "label": "A"} for audit in audits["audits"]]
    await recorder.send("POST", "/audits/labels", {"labels": labels})


async def _pool(recorder: _Recorder) -> None:
    comparisons = [_pair(number) for number in range(300, 400)]
    pool = {"comparisons": comparisons, "even_if_infeasible": True}
    await recorder.send("POST", "/calibrations/{name}/pool", pool, show=f"{_SET} digests")


def pretty(value: Any, indent: int = 0, *, before: int = 0) -> str:
    """JSON with several fields in a line.

    Args:
        value: The value.
        indent: Indentation of its lines.
        before: Number of characters before it in its first line.
    """
    flat = _unquoted(json.dumps(value, ensure_ascii=False))
    if len(flat) + indent + before <= _WIDTH or not isinstance(value, dict | list):
        return flat
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = _filled([*_parts(value, indent + 2)], indent + 2)
    return "\n".join([opening, *lines, " " * indent + closing])


def _parts(value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            named = f"{json.dumps(key)}: {pretty(item, indent, before=len(key) + 4)}"
            yield _MORE if key == _MORE else named
    else:
        for item in value:
            yield pretty(item, indent)


def _filled(parts: list[str], indent: int) -> list[str]:
    """Puts as many parts into a line as fit; a part of several lines shares none."""
    lines: list[str] = []
    for number, part in enumerate(parts):
        text = part + "," * (number < len(parts) - 1)
        last = lines[-1] if lines else ""
        if lines and "\n" not in text + last and len(last) + len(text) < _WIDTH:
            lines[-1] = f"{last} {text}"
        else:
            lines.append(" " * indent + text)
    return lines


def _unquoted(text: str) -> str:
    return text.replace(f'"{_MORE}": "{_MORE}"', _MORE).replace(f'"{_MORE}"', _MORE)
