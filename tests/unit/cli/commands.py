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


def scripted_application() -> FastAPI:
    """The application of a service with a scripted judge, as the environment describes it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SCRIPTED.items():
            patch.setenv(name, value)
        return create()
