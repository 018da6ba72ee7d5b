"""Tests of the formats of the log."""

import json
import logging
import sys

import pytest

from app.logs import LogFormat, formatter_of


def record(message: str, *, failed: bool = False) -> logging.LogRecord:
    raised = None
    if failed:
        try:
            raise ValueError("the reason")
        except ValueError:
            raised = sys.exc_info()
    made = logging.LogRecord("app", logging.WARNING, "file.py", 1, "%s", (message,), raised)
    made.created = 1769850307.5
    return made


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("text", "2026-01-31T09:05:07.500Z WARNING  two\nlines"),
        (
            "json",
            '{"time": "2026-01-31T09:05:07.500Z", "level": "warning", "logger": "app", '
            '"message": "two\\nlines"}',
        ),
    ],
)
def test_a_line_has_time_level_and_message(kind: LogFormat, line: str) -> None:
    assert formatter_of(kind).format(record("two\nlines")) == line


def test_a_traceback_is_within_the_json_line() -> None:
    line = formatter_of("json").format(record("it failed", failed=True))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: the reason")
