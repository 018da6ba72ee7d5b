"""Programs that tests and benches run: each has a log, and a process group of its own."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

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


class Program:
    """A program that can be ended and started again; it runs within its context.

    Args:
        folder: Folder of its log.
        name: Name of its log.
        command: Its path and its arguments.
        environment: Variables that it has besides those of this process, of which it gets no
            settings.
        ready: A part of its output that shows that it is ready.
        start_timeout_s: Longest time until then, in seconds.
        options: Further arguments of `subprocess.Popen`.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        ready: str = "",
        start_timeout_s: float = PATIENCE_S,
        **options: Any,
    ) -> None:
        self.log = folder / f"{name}.log"
        self.arguments = [*command]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCOPE_", "VLLM_"))}
        self.environment = clean | dict(environment or {})
        self.process: subprocess.Popen[bytes] | ForkedCommand | None = None
        self._ready = ready
        self._start_timeout_s = start_timeout_s
        self._options = options

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the program and waits until it is ready."""
        self.process = self.started()
        deadline = time.monotonic() + self._start_timeout_s
        try:
            while not self.is_ready():
                assert self.is_running, f"{self.arguments} ended:\n{self._end_of_log}"
                assert time.monotonic() < deadline, f"not ready in time:\n{self._end_of_log}"
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise

    def started(self) -> "subprocess.Popen[bytes] | ForkedCommand":
        """Starts the program in a group of its own: `kill` must reach vLLM's process, too."""
        with self.log.open("ab") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **self._options}
            return subprocess.Popen(
                self.arguments, env=self.environment, start_new_session=True, **options
            )

    def is_ready(self) -> bool:
        """Whether it is ready, now that it runs."""
        return self._ready in self.log.read_text()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def _end_of_log(self) -> str:
        return self.log.read_text()[-4000:]

    def start_unless_running(self) -> None:
        """Starts the program if it has ended."""
        if not self.is_running:
            self.start()

    def kill(self) -> None:
        """Kills the whole group with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Sends SIGTERM, like a supervisor; returns the exit status."""
        return self._end(signal.SIGTERM)

    def send_signal(self, which: signal.Signals) -> None:
        """Sends a signal to the program without waiting."""
        assert self.process is not None
        self.process.send_signal(which)

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        assert self.process is not None
        return self.process.pid

    def wait(self) -> int:
        """Waits until it ends by itself; returns its exit status."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def _end(self, how: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        try:
            if how is not signal.SIGKILL:
                process.send_signal(how)
                return process.wait(PATIENCE_S)
        finally:
            # vLLM's process may outlive its parent.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait(PATIENCE_S)


class HttpServer(Program):
    """A program that answers HTTP on a port of this machine.

    Args:
        ready_path: Path that has status 200 once it is ready.
    """

    def __init__(self, *arguments: Any, port: int, ready_path: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S)
        self._ready_path = ready_path

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        self.client.close()

    def is_ready(self) -> bool:
        """Whether its path for this says so."""
        try:
            return self.client.get(self._ready_path).status_code == 200
        except httpx.TransportError:
            return False
