"""A set moves from a service with SQLite to one with Redis, by the command line alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.integration.processes.server import Server
from tests.redis_server import RedisServer
from tests.unit.api.problems import examples

SCRIPTED = {"SCOPE_ENGINE": "scripted"}


def scope_judge(server: Server, *arguments: str) -> str:
    """Runs a command against a service; returns what it prints to stdout."""
    program = str(Path(sys.executable).with_name("scope-judge"))
    command = [program, *arguments, "--url", f"http://127.0.0.1:{server.port}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")}
    told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return told.stdout


def set_at(server: Server) -> Any:
    return httpx.get(f"http://127.0.0.1:{server.port}/calibrations/mine").json()


def test_a_set_moves_from_sqlite_to_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    rows = examples(600)
    for row in rows[::25]:
        row["label"] = "B"
    labels, moved = tmp_path / "labels.jsonl", tmp_path / "set.jsonl.gz"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    sqlite = {**SCRIPTED, "SCOPE_STORE_URL": f"sqlite:///{tmp_path}/sets.db"}
    with Server(tmp_path / "one", sqlite) as one:
        scope_judge(one, "calibrate", str(labels), "--name", "mine")
        scope_judge(one, "sets", "export", "mine", "--out", str(moved))
        before = set_at(one)
    with Server(tmp_path / "other", {**SCRIPTED, "SCOPE_STORE_URL": redis_server.url}) as other:
        scope_judge(other, "sets", "import", str(moved), "--yes")
        assert set_at(other) == before
        assert scope_judge(other, "sets", "list").startswith("mine\t1\t600\tscripted\t")
    thresholds = {row["alpha"]: row for row in before["thresholds"] if row["feasible"]}
    assert thresholds
    row = thresholds[0.25]
    field = f"{row['guarantee']}:{row['alpha']:.2f}"
    found = redis_server.command("HGET", "scope:{mine}:thresholds", field)
    assert float(str(found)) == row["threshold"]
