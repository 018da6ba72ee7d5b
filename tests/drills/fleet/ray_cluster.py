"""A Ray cluster of machines that are raylets here, each of which may be killed with all it runs."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.integration.processes.server import free_port

BIN = Path(sys.executable).parent
_START_S = 400.0


def processes() -> dict[int, tuple[int, str]]:
    """Of every process its parent and its command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        found[int(folder.name)] = (parent, command)
    return found


def below(pid: int) -> list[tuple[int, str]]:
    """Every process that a process has started, at any remove."""
    everything = processes()

    def children(parent: int) -> Iterator[tuple[int, str]]:
        for child, (its_parent, command) in everything.items():
            if its_parent == parent:
                yield child, command
                yield from children(child)

    return list(children(pid))


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class RayCluster:
    """Two machines with two fake processors each; the first is the head.

    Args:
        folder: For sessions and the cluster's own token; its path has to be short.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._machines: list[subprocess.Popen[bytes]] = []
        self.port, self._dashboard_port = free_port(), free_port()
        token = folder / "token"
        self._token = secrets.token_hex(32)
        token.write_text(self._token)
        token.chmod(0o600)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")}
        self.environment |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            # Its end is the end of what it has started: else vLLM's own process outlives it.
            "RAY_process_group_cleanup_enabled": "true",
        }

    @property
    def address(self) -> str:
        """For drivers."""
        return f"127.0.0.2:{self.port}"

    @property
    def dashboard(self) -> str:
        """For `serve deploy`."""
        return f"http://127.0.0.1:{self._dashboard_port}"

    def start(self) -> None:
        """Starts both machines, and returns when the cluster knows them."""
        head = ["--head", "--port", str(self.port), "--temp-dir", str(self._folder)]
        head += ["--dashboard-port", str(self._dashboard_port), "--disable-usage-stats"]
        self._start_machine("127.0.0.2", head)
        self.wait_for_machines(1)
        self.start_second_machine()

    def start_second_machine(self) -> None:
        """Starts the machine that is not the head; again, if it was killed."""
        self._start_machine("127.0.0.3", ["--address", self.address])
        self.wait_for_machines(2)

    def _start_machine(self, address: str, more: list[str]) -> None:
        command = [str(BIN / "ray"), "start", "--block", "--node-ip-address", address]
        command += ["--num-cpus", "2", "--object-store-memory", str(10**8)]
        command += ["--dashboard-agent-listen-port", str(free_port())]
        with (self._folder / f"{address}.log").open("ab") as log:
            self._machines.append(
                subprocess.Popen(
                    [*command, *more],
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def wait_for_machines(self, wanted: int) -> None:
        """Until the cluster knows so many as alive."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError, ValueError):
                said = self.ask("/nodes?view=summary")["data"]["summary"]
                if sum(node["raylet"]["state"] == "ALIVE" for node in said) == wanted:
                    return
            time.sleep(0.2)
        raise AssertionError(f"the cluster has not {wanted} machines; see {self._folder}")

    def ask(self, path: str) -> dict[str, Any]:
        """What the dashboard's interface answers: the commands ask it too, and start slowly."""
        headers = {"Authorization": f"Bearer {self._token}"}
        answer: dict[str, Any] = httpx.get(
            self.dashboard + path, headers=headers, timeout=30
        ).json()
        return answer

    def running(self, name: str, *, machine: int | None = None) -> list[int]:
        """Processes whose command line has the name, of one machine or of both."""
        machines = self._machines if machine is None else [self._machines[machine]]
        return [pid for each in machines for pid, command in below(each.pid) if name in command]

    def kill_second_machine(self) -> int:
        """SIGKILL of the raylet and all it has started; returns how many processes."""
        return self._kill(self._machines.pop())

    def stop(self) -> None:
        """Ends everything."""
        while self._machines:
            self._kill(self._machines.pop())

    def _kill(self, machine: subprocess.Popen[bytes]) -> int:
        found = [machine.pid, *(pid for pid, _ in below(machine.pid))]
        kill(found)
        machine.wait()
        return len(found)
