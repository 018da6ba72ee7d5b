"""Tests of Ctrl-C while the judge loads: the command ends, and no process or traceback is left."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.integration.processes.process_group import members, seconds_until_gone
from tests.integration.processes.server import SERVE
from tests.patience import PATIENCE_S
from tests.programs import Program

PAIR = '{"question": "Which?", "response_a": "a", "response_b": "b", "label": "A"}\n'


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def loading(folder: Path, arguments: list[str], **settings: str) -> Program:
    """A command that has said that it loads the judge."""
    (folder / "pairs.jsonl").write_text(PAIR * 2)
    given = {"SCOPE_STORE_URL": "memory://", "SCOPE_PORT": "0", **settings}
    command = [SERVE[0], *arguments]
    return Program(folder, "log", command, given, ready="Loading judge", cwd=folder)


def press_ctrl_c(command: Program, which: signal.Signals, status: int) -> str:
    """Sends the signal to the whole group, as a terminal does; returns the output at the end."""
    group = command.pid
    os.killpg(group, which)
    output = command.log.read_text
    assert command.wait() == status, output()
    assert seconds_until_gone(group, at_most_s=PATIENCE_S) < PATIENCE_S
    assert "Traceback" not in output()
    return output()


@pytest.mark.parametrize(
    ("arguments", "sent", "status"),
    [
        (["serve"], signal.SIGINT, 130),
        (["evaluate", "pairs.jsonl", "--judge", "demo"], signal.SIGINT, 130),
        (["serve"], signal.SIGTERM, 143),
    ],
)
def test_a_signal_while_the_judge_loads_ends_the_command(
    arguments: list[str], sent: signal.Signals, status: int, silent_server: str, tmp_path: Path
) -> None:
    openai = {"SCOPE_ENGINE": "openai", "SCOPE_OPENAI_URLS": silent_server}
    with loading(tmp_path, arguments, **openai) as command:
        output = press_ctrl_c(command, sent, status)
        assert output.endswith("stopped before the judge was ready\n")


def importing_torch(command: int) -> set[int]:
    """The processes of a command's group, without itself, that have begun to import torch."""
    found = set()
    for pid in members(command) - {command}:
        with suppress(OSError):
            if "libtorch" in Path(f"/proc/{pid}/maps").read_text():
                found.add(pid)
    return found


@pytest.mark.vllm
@pytest.mark.parametrize(
    "arguments",
    [
        ["serve"],
        pytest.param(["evaluate", "pairs.jsonl", "--judge", "demo"], marks=pytest.mark.long),
    ],
)
def test_ctrl_c_ends_vllm_and_its_process(arguments: list[str], tmp_path: Path) -> None:
    with loading(tmp_path, arguments) as command:
        # A process that Python has not given its work yet ends with a traceback of Python's own.
        while not importing_torch(command.pid):
            assert command.is_running
            time.sleep(0.02)
        press_ctrl_c(command, signal.SIGINT, 130)
