"""The measured processes: each has a process group of its own and a log file."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.integration.processes.server import free_port
from tests.patience import VLLM_START_S

# Interval at which a starting server is asked whether it is ready.
_POLL_S = 0.05


class Process:
    """A running command; leaving the context ends the command and everything that it started."""

    _talks = False

    def __init__(
        self, folder: Path, name: str, command: list[str], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCOPE_", "VLLM_"))}
        with self.log.open("ab") as log:
            # A group of its own: vLLM's engine is another process, which a kill must reach too.
            self.popen = subprocess.Popen(
                command,
                env={**clean, **environment},
                stdin=subprocess.PIPE if self._talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._talks else log,
                stderr=log,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Sends SIGTERM to the whole group, and SIGKILL after half a minute."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(30)
        # vLLM's engine process may outlive its parent.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()

    def rss_bytes(self) -> int:
        """Resident memory of the process itself."""
        pages = int(Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


class HttpServer(Process):
    """A process that answers HTTP on a free port."""

    def __init__(
        self,
        folder: Path,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        *,
        port: int,
        ready_path: str,
    ) -> None:
        super().__init__(folder, name, command, environment)
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        try:
            self._wait(ready_path)
        except BaseException:
            self.stop()
            raise

    def _wait(self, ready_path: str) -> None:
        deadline = time.monotonic() + VLLM_START_S
        # One client: httpx spends 30 ms of the processor on each new one, while the server starts.
        with httpx.Client(base_url=self.url, timeout=30) as client:
            while time.monotonic() < deadline:
                if self.popen.poll() is not None:
                    raise RuntimeError(f"{self.name} ended:\n{self.log.read_text()[-4000:]}")
                with contextlib.suppress(httpx.TransportError):
                    if client.get(ready_path).status_code == 200:
                        return
                time.sleep(_POLL_S)
        raise RuntimeError(f"{self.name} was not ready in time:\n{self.log.read_text()[-4000:]}")


# The command that users run.
SERVE = (str(Path(sys.executable).with_name("scope-judge")), "serve")


def serve(
    folder: Path, settings: Mapping[str, str], *, command: Sequence[str] = SERVE
) -> HttpServer:
    """A running `scope-judge serve`.

    Args:
        folder: Folder for its log.
        settings: Settings by name without SCOPE_; one without a port gets a free one, and one
            without a drain lag has none, because no proxy is in front of it.
        command: Arguments of Python that start it.
    """
    settings = {"drain_lag_s": "0", **settings}
    port = int(settings.setdefault("port", str(free_port())))
    return HttpServer(
        folder,
        f"serve-{port}",
        [sys.executable, *command],
        {f"SCOPE_{name.upper()}": value for name, value in settings.items()},
        port=port,
        ready_path="/readyz",
    )


class Worker(Process):
    """A module that answers JSON lines with JSON lines."""

    _talks = True

    def __init__(
        self,
        folder: Path,
        name: str,
        module: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [sys.executable, "-m", module, json.dumps(options)]
        super().__init__(folder, name, command, environment or {})
        try:
            self.started = self._answer()
        except BaseException:
            self.stop()
            raise

    def ask(self, **question: Any) -> dict[str, Any]:
        """Sends a question and waits for its answer."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(question).encode() + b"\n")
        self.popen.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        # Libraries also print to stdout; such lines are not answers.
        for line in self.popen.stdout:
            if line.startswith(b'{"answer":'):
                answer: dict[str, Any] = json.loads(line)["answer"]
                return answer
        raise RuntimeError(f"{self.name} ended:\n{self.log.read_text()[-4000:]}")


def answer_questions(
    answer: Callable[[dict[str, Any]], dict[str, Any]], *, started: dict[str, Any]
) -> None:
    """A worker's own side: reports its start, then answers questions until stdin ends."""
    _say(started)
    for line in sys.stdin:
        _say(answer(json.loads(line)))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps({"answer": answer}), flush=True)
