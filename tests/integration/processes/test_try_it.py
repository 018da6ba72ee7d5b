"""Tests that the command that `scope-judge serve` prints gets an answer, whatever is calibrated."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.processes.server import SERVE, Server
from tests.patience import PATIENCE_S, wait_until
from tests.unit.api.problems import examples

# Settings of a second start that finds the set `default`, the alpha of the printed command's answer
# (None without a promise), and a part of the sentence above it.
STARTS: dict[str, tuple[dict[str, str], float | None, str]] = {
    "other defaults": (
        {
            "SCOPE_DEFAULT_ALPHA": "0.2",
            "SCOPE_DEFAULT_GUARANTEE": "pac",
            "SCOPE_DEFAULT_DELTA": "0.2",
        },
        0.2,
        "",
    ),
    "infeasible": (
        {"SCOPE_DEFAULT_ALPHA": "0.001"},
        None,
        "'default' accepts nothing at alpha 0.001",
    ),
}


def answer_of(server: Server, *, says: str = "", **environment: str) -> dict[str, object]:
    """Runs the command below "Try it:" in a shell; it is printed by another thread."""
    wait_until(lambda: server.log.read_text().endswith("}'\n"))
    printed = server.log.read_text()
    assert says in " ".join(printed.split())
    *_, command = re.findall(r"Try it:\n  (curl .*)", printed)
    done = subprocess.run(
        ["bash", "-c", f"{command} --fail-with-body --silent"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    found: dict[str, object] = json.loads(done.stdout)
    assert (found["preferred"], found["reason"] == "infeasible") == ("A", False)
    return found


@pytest.mark.parametrize("name", STARTS)
def test_the_printed_command_gets_a_judgment_before_and_after_a_calibration(
    name: str, tmp_path: Path
) -> None:
    settings, alpha, says = STARTS[name]
    settings = {**settings, "SCOPE_STORE_URL": f"sqlite:///{tmp_path}/calibration.db"}
    with Server(tmp_path, {"SCOPE_ENGINE": "scripted", **settings}) as server:
        says_first = "There is no calibration 'default' of this judge"
        assert answer_of(server, says=says_first)["alpha"] is None
        server.client.post("/calibrate", json={"examples": examples(60)}).raise_for_status()
        server.stop()
        server.log.write_text("")
        server.start()
        assert answer_of(server, says=says)["alpha"] == alpha


def test_the_printed_command_sends_the_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = subprocess.run(
        [SERVE[0], "keys", "add", "me", "--role", "judge", "--file", keys],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
    with Server(tmp_path, {**settings, "SCOPE_API_KEYS_FILE": str(keys)}) as server:
        answer_of(server, SCOPE_API_KEY=key)
