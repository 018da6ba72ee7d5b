"""Fixtures of the bulk commands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WriteRows = Callable[[list[dict[str, Any]]], Path]


@pytest.fixture
def bulk_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteRows:
    """Writes rows into in.jsonl of the working folder; the judge is the scripted one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCOPE_ENGINE", "scripted")
    monkeypatch.setenv("SCOPE_STORE_URL", "memory://")

    def write(rows: list[dict[str, Any]]) -> Path:
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path

    return write
