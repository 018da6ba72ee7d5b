"""Runs `scope-judge serve` in a process group of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx

from tests.forked import ForkedCommand
from tests.patience import PATIENCE_S


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


SERVE = (str(Path(sys.executable).with_name("scope-judge")), "serve")


class Server:
    """A running service.

    Args:
        folder: Folder of the log.
        settings: Environment variables.
        start_timeout_s: Longest time until the service is ready, in seconds.
        output: File descriptor for stdout and stderr; None for a log file in `folder`.
        command: Command that starts the service in a process of its own; without one, a service
            with the scripted judge forks from a process that has imported it.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str],
        *,
        start_timeout_s: float = PATIENCE_S,
        output: int | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self.port = free_port()
        self.log = folder / "serve.log"
        self._start_timeout_s = start_timeout_s
        self._output = output
        self._forks = command is None and settings.get("SCOPE_ENGINE") == "scripted"
        self._command = command or SERVE
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")}
        # No proxy is in front of the service, so it needs no drain lag.
        self._environment |= {"SCOPE_DRAIN_LAG_S": "0", **settings, "SCOPE_PORT": str(self.port)}
        self._process: subprocess.Popen[bytes] | ForkedCommand | None = None
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE_S)

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        self.client.close()

    def start(self) -> None:
        """Starts the service and waits until it is ready."""
        self._process = self._started()
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"serve ended:\n{self.log.read_text()}"
            try:
                if self.client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
        self.kill()
        raise AssertionError(f"serve was not ready in time:\n{self.log.read_text()}")

    def _started(self) -> "subprocess.Popen[bytes] | ForkedCommand":
        """Starts the service in a group of its own: `kill` must reach vLLM's process, too."""
        if self._forks and self._output is None:
            self.log.touch()
            return ForkedCommand(["serve"], environment=self._environment, output=self.log)
        with self.log.open("ab") as log:
            output = log if self._output is None else self._output
            return subprocess.Popen(
                [word.format(port=self.port) for word in self._command],
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_unless_running(self) -> None:
        """Starts the service if it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Kills the whole group with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Sends SIGTERM, like a supervisor; returns the exit status."""
        return self._end(signal.SIGTERM)

    def send_signal(self, which: signal.Signals) -> None:
        """Sends a signal to the service without waiting."""
        assert self._process is not None
        self._process.send_signal(which)

    @property
    def pid(self) -> int:
        """Process id of the service, which is also the id of its process group."""
        assert self._process is not None
        return self._process.pid

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Waits until the service ends by itself; returns its exit status."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            if how is signal.SIGKILL:
                os.killpg(process.pid, how)
            else:
                process.send_signal(how)
        try:
            return process.wait(timeout=PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
