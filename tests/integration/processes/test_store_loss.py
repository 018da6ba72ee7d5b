"""A service whose SQLite file is replaced ends, and serves the file at the path after a restart."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.sets.codec import decode
from tests.integration.processes.server import Server

FIRST, LATER = 30, 45
SUFFIXES = ("", "-wal", "-shm")


def examples(numbers: range) -> list[dict[str, Any]]:
    return [
        {
            "question": f"Question {number}?",
            "response_a": f"quality={number / 10}",
            "response_b": "quality=0",
            "label": "A",
        }
        for number in numbers
    ]


def beside(path: Path, suffix: str) -> Path:
    return Path(f"{path}{suffix}")


def move_over(path: Path, backup: Path) -> int:
    """Moves the backup over the file, and leaves the log of the file there."""
    backup.rename(path)
    return FIRST


def delete(path: Path, backup: Path) -> int:
    for suffix in SUFFIXES:
        beside(path, suffix).unlink()
    return 0


def move_away_and_restore(path: Path, backup: Path) -> int:
    for suffix in SUFFIXES:
        beside(path, suffix).rename(beside(path, f"{suffix}.away"))
    backup.rename(path)
    return FIRST


def copy_over(path: Path, backup: Path) -> int:
    """Removes the log, and copies the backup into the open file."""
    for suffix in ("-wal", "-shm"):
        beside(path, suffix).unlink()
    shutil.copyfile(backup, path)
    return FIRST


@pytest.mark.parametrize("replace", [move_over, delete, move_away_and_restore, copy_over])
def test_a_replaced_file_ends_the_service_and_a_restart_serves_the_new_one(
    replace: Callable[[Path, Path], int], tmp_path: Path
) -> None:
    path, backup = tmp_path / "sets.db", tmp_path / "backup"
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": f"sqlite:///{path}"}
    with Server(tmp_path, settings) as server:
        post = server.client.post
        post("/calibrate", json={"examples": examples(range(FIRST))}).raise_for_status()
        with closing(sqlite3.connect(path)) as file:
            file.execute("VACUUM INTO ?", (str(backup),))
        content = backup.read_bytes()
        post("/calibrate", json={"examples": examples(range(FIRST, LATER))}).raise_for_status()
        n = replace(path, backup)
        # The service asks the store every second, and may have ended before the request.
        with suppress(httpx.TransportError):
            answer = post("/calibrate", json={"examples": examples(range(LATER, 60))})
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert f"{path}, or the -wal or -shm beside it, was removed" in answer.json()["detail"]
        assert server.wait() == 1
        assert (path.read_bytes() if path.exists() else None) == (content if n else None)
        last = server.log.read_text().rstrip().splitlines()[-1]
        assert last.startswith(f"error: {path}, or the -wal or -shm beside it, was removed or")
        assert last.endswith("the service has stopped: start it again")
        server.start()
        sets = server.client.get("/calibrations").json()["calibrations"]
        assert [each["n"] for each in sets] == ([n] if n else [])
        post("/calibrate", json={"examples": examples(range(60, 65))}).raise_for_status()
    with closing(sqlite3.connect(path)) as file:
        assert examples_in(file) == n + 5
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    away = beside(path, ".away")
    if away.exists():
        with closing(sqlite3.connect(away)) as file:
            assert examples_in(file) == LATER


def examples_in(file: sqlite3.Connection) -> int:
    """The number of examples of the newest version."""
    (blob,) = file.execute("SELECT blob FROM version ORDER BY number DESC LIMIT 1").fetchone()
    return decode("default", blob).n
