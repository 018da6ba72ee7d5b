"""A service whose SQLite file is replaced ends, and serves the file at the path after a restart.

tests/integration/stores/test_sqlite_file.py has the ways in which a file can be replaced.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import httpx

from tests.integration.processes.server import Server
from tests.unit.api.problems import examples


def test_a_replaced_file_ends_the_service_and_a_restart_serves_the_new_one(tmp_path: Path) -> None:
    path, backup = tmp_path / "sets.db", tmp_path / "backup"
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": f"sqlite:///{path}"}
    said = f"{path}, or the -wal or -shm beside it, was removed"
    with Server(tmp_path, settings) as server:

        def post(count: int) -> httpx.Response:
            return server.client.post("/calibrate", json={"examples": examples(100)[:count]})

        post(30).raise_for_status()
        with closing(sqlite3.connect(path)) as file:
            file.execute("VACUUM INTO ?", (str(backup),))
        content = backup.read_bytes()
        post(45).raise_for_status()
        # The log of the file stays beside it.
        backup.rename(path)
        # The service asks the store every second, and may have ended before the request.
        with suppress(httpx.TransportError):
            answer = post(60)
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert said in answer.json()["detail"]
        assert server.wait() == 1
        assert path.read_bytes() == content
        last = server.log.read_text().rstrip().splitlines()[-1]
        assert last.startswith(f"error: {said}")
        assert last.endswith("the service has stopped: start it again")
        server.start()
        (kept,) = server.client.get("/calibrations").json()["calibrations"]
        assert kept["n"] == 30
        assert post(65).json()["n"] == 65
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
