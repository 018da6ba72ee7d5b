"""Real requests to a service with a scripted judge, and its answers, for docs/reference."""

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from app.judges.engines.scripted import ScriptedEngine, logits_of_gap
from app.ports import LabelLogits, Prompt
from tests.serving import client_of

# Width of a line of JSON.
_WIDTH = 96
_MORE = "..."
# Texts are cut after this many characters.
_LONGEST = 70


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """The body of a request, and that of its answer."""

    body: Any
    answer: Any


def examples() -> dict[str, Example]:
    """Sends a request to the routes whose answers the page shows; route -> example."""
    return asyncio.run(_examples())


async def _examples() -> dict[str, Example]:
    async with client_of(ScriptedEngine(_adds)) as client:
        recorder = _Recorder(client)
        await _judge(recorder)
        return recorder.examples


class _Recorder:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.examples: dict[str, Example] = {}

    async def post(self, path: str, body: Any, *, show: str = "") -> None:
        """Sends a request, and keeps it as the example of its route.

        Args:
            path: Path of the route.
            body: The request's body.
            show: Names of the fields of the answer to show; all if empty.
        """
        response = await self._client.post(path, json=body)
        response.raise_for_status()
        answer = _short(response.json(), frozenset(show.split()))
        self.examples[f"POST {path}"] = Example(body=_short(body), answer=answer)


def _short(value: Any, show: frozenset[str] = frozenset()) -> Any:
    """The value with short texts, numbers and lists.

    Args:
        value: The value.
        show: Names of the fields to keep in objects that have any of them.
    """
    match value:
        case dict():
            names = show & value.keys() or value.keys()
            kept_fields = {key: _short(item, show) for key, item in value.items() if key in names}
            return kept_fields | ({_MORE: _MORE} if len(names) < len(value) else {})
        case list():
            kept = [_short(item, show) for item in value[: _shown_items(value)]]
            return kept + [_MORE] * (len(value) > len(kept))
        case float():
            return float(f"{value:.5g}")
        case str():
            return value if len(value) <= _LONGEST else value[:_LONGEST] + _MORE
        case _:
            return value


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
    shown = "name version n thresholds alpha guarantee threshold coverage added failed"
    await recorder.post("/calibrate", {"examples": labeled}, show=shown)
    await recorder.post("/judge", _pair(48, alpha=0.1))
    batch = {"comparisons": [_pair(49), _pair(50)]}
    await recorder.post("/judge/batch", batch, show="results verdict p_bar threshold")
    group = {"question": "What is 51 + 27?", "responses": ["78", "79"]}
    await recorder.post("/rewards/group", group, show="rewards reasons accepted compared")


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
