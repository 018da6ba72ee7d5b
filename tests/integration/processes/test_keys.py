"""Tests of keys with a real `scope-judge serve` and the commands that send requests to it."""

import socket
import time
from pathlib import Path

import httpx
from typer.testing import CliRunner

from app.api.keys import hash_of
from app.cli import app
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.programs import free_port
from tests.unit.api.problems import comparison, problem

runner = CliRunner()
SCRIPTED = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://", "SCOPE_LOG_LEVEL": "debug"}
# Longest time until a running service uses a changed key file, as the issue demands.
WITHIN_S = 1.0
_PAUSE_S = 0.005


def keys(path: Path, *arguments: str) -> str:
    """Runs `scope-judge keys`, and returns its output."""
    done = runner.invoke(app, ["keys", *arguments, "--file", str(path)])
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def seconds_until(server: Server, key: str, status: int) -> float:
    """Seconds until this key gets this status, without the time that this process was delayed."""
    begun, held_up_s = time.monotonic(), 0.0
    while server.client.get("/info", headers=bearer(key)).status_code != status:
        assert time.monotonic() - begun < PATIENCE_S
        slept = time.monotonic()
        time.sleep(_PAUSE_S)
        held_up_s += time.monotonic() - slept - _PAUSE_S
    return time.monotonic() - begun - held_up_s


def connects(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_a_service_with_keys_requires_one_and_follows_the_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    judge = keys(path, "add", "judge", "--role", "judge")
    reader = keys(path, "add", "reader")
    prometheus = keys(path, "add", "prometheus", "--role", "metrics")
    settings = SCRIPTED | {"SCOPE_API_KEYS_FILE": str(path), "SCOPE_HOST": "0.0.0.0"}
    answers = []
    with Server(tmp_path, settings) as server:
        # With keys, other machines can reach the service.
        assert connects("127.0.0.2", server.port)
        body = comparison(alpha=None)
        for headers, code in (
            ({}, "unauthenticated"),
            (bearer("scope_wrong"), "unauthenticated"),
            (bearer(reader), "forbidden"),
        ):
            answers.append(server.client.post("/judge", json=body, headers=headers))
            problem(answers[-1], code)
        answers.append(server.client.post("/judge", json=body, headers=bearer(judge)))
        assert answers[-1].json()["verdict"] == "A"
        problem(server.client.get("/metrics"), "unauthenticated")
        problem(server.client.get("/metrics", headers=bearer(reader)), "forbidden")
        answers.append(server.client.get("/metrics", headers=bearer(prometheus)))
        assert answers[-1].status_code == 200

        keys(path, "revoke", "judge")
        assert seconds_until(server, judge, 401) < WITHIN_S
        late = keys(path, "add", "late", "--role", "judge")
        assert seconds_until(server, late, 200) < WITHIN_S

        content = path.read_bytes()
        path.unlink()
        assert seconds_until(server, late, 503) < WITHIN_S
        answers.append(server.client.get("/info", headers=bearer(late)))
        problem(answers[-1], "keys_unavailable")
        assert server.client.get("/healthz").status_code == 200
        path.write_bytes(content)
        assert seconds_until(server, late, 200) < WITHIN_S
    log = server.log.read_text()
    assert "127.0.0.1 only" not in log
    assert log.count("every key is refused: No such file") == 1
    told = log + "".join(f"{each.headers} {each.text}" for each in answers)
    for key in (judge, reader, prometheus, late, "scope_wrong"):
        assert key not in told
        assert hash_of(key.encode()).hex()[:12] not in told


def test_the_port_of_the_metrics_needs_no_key_and_shows_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    admin = keys(path, "add", "admin", "--role", "admin", "--role", "judge")
    port = free_port()
    settings = {"SCOPE_API_KEYS_FILE": str(path), "SCOPE_METRICS_PORT": str(port)}
    with Server(tmp_path, SCRIPTED | settings) as server:
        beside = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{beside}/metrics", timeout=PATIENCE_S).status_code == 200
        problem(httpx.get(f"{beside}/info", headers=bearer(admin), timeout=PATIENCE_S), "not_found")
        lying = server.client.get("/metrics", headers={"Host": f"127.0.0.1:{port}"})
        problem(lying, "unauthenticated")
        body = comparison(alpha=None)
        assert server.client.post("/judge", json=body, headers=bearer(admin)).status_code == 200
        assert server.url in server.log.read_text()
    assert not connects("127.0.0.1", port)


def test_without_keys_only_this_machine_is_answered_and_the_log_says_so(tmp_path: Path) -> None:
    with Server(tmp_path, SCRIPTED | {"SCOPE_HOST": "0.0.0.0"}) as server:
        assert connects("127.0.0.1", server.port)
        # On 0.0.0.0 it would answer on this address, too.
        assert not connects("127.0.0.2", server.port)
        assert server.client.post("/judge", json=comparison(alpha=None)).status_code == 200
    log = server.log.read_text()
    assert "the service listens on 127.0.0.1, not on 0.0.0.0" in log
    assert "scope-judge keys add NAME --role judge" in log
    assert server.url in log
