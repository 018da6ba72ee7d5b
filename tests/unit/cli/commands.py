"""Commands in processes of their own, their output, and the files that they read and write."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from app.main import create
from tests.seeded_drift import seed_drift

seed_drift()

# The command in a process of its own, before its arguments.
PROGRAM = (sys.executable, "-c", "from app.cli import main; main()")
SCRIPTED = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}


# The scripted judge is sure of GOOD against BAD, and unsure of GOOD against SAME.
GOOD, BAD, SAME = "quality=4", "quality=0", "quality=3.9"


def one_line(text: str) -> str:
    """The output of a command in one line, independent of the terminal's width."""
    return " ".join(text.split())


def rows_of(text: str) -> list[dict[str, Any]]:
    """The objects of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Writes objects as JSON lines; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def send_one_request_at_a_time(patch: pytest.MonkeyPatch, size: int) -> None:
    """Makes clients in this process send one request at a time, with so many items."""
    patch.setattr("scope_judge.calls.FIRST_SIZE", size)
    patch.setattr("scope_judge.batches._GROWTH", 1)
    patch.setattr("scope_judge.calls.IN_FLIGHT", 1)
    patch.setattr("scope_judge.exchange._FIRST_PAUSE_S", 0.01)


def scripted_application() -> FastAPI:
    """The application of a service with a scripted judge, as the environment describes it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SCRIPTED.items():
            patch.setenv(name, value)
        return create()
