"""Tests that the command that `scope-judge serve` prints gets an answer, whatever is calibrated."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.processes.server import SERVE, Server
from tests.patience import PATIENCE_S
from tests.unit.api.problems import examples


class Start(NamedTuple):
    """A start of the service, and the alpha that the printed command's answer has.

    Args:
        calibrated: Whether an earlier start made the set `default`.
        settings: Environment variables of this start.
        alpha: Alpha of the answer; None without a promise.
        said: A part of the sentence above the command.
    """

    calibrated: bool
    settings: Mapping[str, str]
    alpha: float | None
    said: str = ""


STARTS = {
    "not calibrated": Start(False, {}, None, "There is no calibration 'default' of this judge"),
    "calibrated, other defaults": Start(
        True,
        {
            "SCOPE_DEFAULT_ALPHA": "0.2",
            "SCOPE_DEFAULT_GUARANTEE": "pac",
            "SCOPE_DEFAULT_DELTA": "0.2",
        },
        0.2,
    ),
    "infeasible": Start(
        True, {"SCOPE_DEFAULT_ALPHA": "0.001"}, None, "'default' accepts nothing at alpha 0.001"
    ),
}


def settings_in(folder: Path) -> dict[str, str]:
    return {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": f"sqlite:///{folder}/calibration.db",
    }


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file of a service that was calibrated and stopped."""
    folder = tmp_path_factory.mktemp("calibrated")
    with Server(folder, settings_in(folder)) as server:
        answer = server.client.post("/calibrate", json={"examples": examples(60)})
        assert answer.status_code == 200
    return folder / "calibration.db"


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_the_printed_command_gets_a_judgment(
    start: Start, calibrated: Path, tmp_path: Path
) -> None:
    if start.calibrated:
        shutil.copy(calibrated, tmp_path)
    with Server(tmp_path, {**settings_in(tmp_path), **start.settings}) as server:
        printed = printed_by(server)
        assert start.said in " ".join(printed.split())
        judgment = answer_to_the_command_in(printed)
    assert judgment["preferred"] == "A"
    assert judgment["alpha"] == start.alpha
    assert judgment["reason"] != "infeasible"


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
        judgment = answer_to_the_command_in(printed_by(server), SCOPE_API_KEY=key)
    assert judgment["preferred"] == "A"


def printed_by(server: Server) -> str:
    """The output of a service until the printed command, which another thread writes."""
    deadline = time.monotonic() + PATIENCE_S
    while not (printed := server.log.read_text()).endswith("}'\n"):
        assert time.monotonic() < deadline, printed
        time.sleep(0.01)
    return printed


def answer_to_the_command_in(printed: str, **environment: str) -> dict[str, object]:
    """Runs the command below "Try it:" in a shell."""
    command = re.search(r"Try it:\n  (curl .*)", printed)
    assert command, printed
    done = subprocess.run(
        ["bash", "-c", f"{command[1]} --fail-with-body --silent"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    found: dict[str, object] = json.loads(done.stdout)
    return found
