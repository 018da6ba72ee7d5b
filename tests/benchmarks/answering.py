"""The worker's side of `processes.Worker`: reads a JSON line and writes a JSON line."""

import json
import sys
from collections.abc import Callable
from typing import Any


def answer_questions(
    answer: Callable[[dict[str, Any]], dict[str, Any]], *, started: dict[str, Any]
) -> None:
    """Reports that the worker has started, then answers questions until stdin ends."""
    _say(started)
    for line in sys.stdin:
        _say(answer(json.loads(line)))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps({"answer": answer}), flush=True)
