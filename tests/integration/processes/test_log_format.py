"""Tests of the service's log: every line has a time, and with JSON every line is an object."""

import json
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.processes.server import SERVE, Server
from tests.unit.api.problems import comparison

UVICORN = (sys.executable, "-m", "uvicorn", "--factory", "app.main:create", "--port", "{port}")
QUESTION = "xyzzy-question"


def log_of_a_run(folder: Path, command: tuple[str, ...], settings: Mapping[str, str]) -> list[str]:
    """The lines of a service that has judged a pair and was stopped."""
    scripted = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://", **settings}
    with Server(folder, scripted, command=command) as server:
        body = comparison(alpha=None, question=QUESTION)
        answer = server.client.post(
            "/judge?x=secret", json=body, headers={"X-Request-Id": "my-request"}
        )
        assert (answer.status_code, answer.headers["X-Request-Id"]) == (200, "my-request")
        for path in ("/a%20secret", "/calibrations/scope_secret", "/s\u00e4cret/versions"):
            assert server.client.get(path).status_code in (404, 422)
        assert server.stop() in (0, -15)
        return server.log.read_text().splitlines()


@pytest.mark.parametrize("command", [SERVE, UVICORN], ids=["serve", "uvicorn"])
def test_json_logs_have_an_object_in_every_line(command: tuple[str, ...], tmp_path: Path) -> None:
    found = [
        json.loads(line)
        for line in log_of_a_run(tmp_path, command, {"SCOPE_LOG_FORMAT": "json"})
        # Uvicorn's own command logs before it loads the application.
        if command is SERVE or line.startswith("{")
    ]
    assert {"app", "uvicorn.error", "app.access"} <= {line["logger"] for line in found}
    for line in found:
        of_requests = (
            {"key", "request", "status", "ms"} if line["logger"] == "app.access" else set()
        )
        assert set(line) == {"time", "level", "logger", "message"} | of_requests
        assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)
        assert line["level"] in ("info", "warning")
        assert QUESTION not in line["message"]
        assert "secret" not in line["message"]
        assert "cret" not in line["message"]
    access = [line for line in found if line["logger"] == "app.access"]
    assert [line["message"].partition('"')[2] for line in access] == [
        'POST /judge" 200',
        'GET /..." 404',
        'GET /calibrations/..." 404',
        'GET /.../versions" 404',
    ]
    judged = access[0]
    assert (judged["status"], judged["key"], judged["request"]) == (200, None, "my-request")
    assert 0 < judged["ms"] < 60_000


def test_a_start_that_fails_logs_its_reason_as_json(tmp_path: Path) -> None:
    settings = {
        "SCOPE_ENGINE": "openai",
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_LOG_FORMAT": "json",
    }
    with pytest.raises(AssertionError, match="ended"):
        Server(tmp_path, settings).start()
    last = json.loads((tmp_path / "serve.log").read_text().splitlines()[-1])
    assert last["level"] == "error"
    assert "SCOPE_OPENAI_URLS" in last["message"]
