"""Tests of Ctrl-C while the judge loads: the command ends, and no process or traceback is left."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.processes.process_group import kill, members, seconds_until_gone
from tests.patience import PATIENCE_S

SCOPE_JUDGE = str(Path(sys.executable).with_name("scope-judge"))
PAIR = '{"question": "Which?", "response_a": "a", "response_b": "b", "label": "A"}\n'


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


class Loading:
    """A command whose judge is loading.

    Args:
        process: The command, the leader of its process group.
        log: File with its output.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    def output(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)

    def press_ctrl_c(self, which: signal.Signals = signal.SIGINT) -> None:
        """Sends the signal to the whole group, as a terminal does."""
        os.killpg(self.process.pid, which)

    def assert_ended(self, *statuses: int) -> None:
        assert self.process.wait(PATIENCE_S) in statuses, self.output()
        assert seconds_until_gone(self.process.pid, at_most_s=PATIENCE_S) < PATIENCE_S
        assert "Traceback" not in self.output()


@contextmanager
def loading(folder: Path, arguments: list[str], **settings: str) -> Iterator[Loading]:
    """Runs a command until it says that it loads the judge."""
    (folder / "pairs.jsonl").write_text(PAIR * 2)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")}
    environment |= {"SCOPE_STORE_URL": "memory://", "SCOPE_PORT": "0", **settings}
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [SCOPE_JUDGE, *arguments],
            cwd=folder,
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        command = Loading(process, log)
        command.until(lambda: "Loading judge" in command.output())
        yield command
    finally:
        kill(process.pid)
        process.wait()


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
        command.press_ctrl_c(sent)
        command.assert_ended(status)
        assert command.output().endswith("stopped before the judge was ready\n")


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
        command.until(lambda: bool(importing_torch(command.process.pid)))
        command.press_ctrl_c()
        command.assert_ended(130)
