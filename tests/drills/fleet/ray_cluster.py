"""A local Ray cluster whose machines are raylets; each can be killed with all its processes."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from tests.integration.processes.server import free_port

BIN = Path(sys.executable).parent
_START_S = 400.0


def processes() -> dict[int, tuple[int, str]]:
    """Pid of every process -> pid of its parent and its command line."""
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
    """Pid and command line of every descendant of a process."""
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
    """Two machines that offer two CPUs each; the first is the head.

    Args:
        folder: Folder of the sessions and the cluster's token; its path must be short.
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
            # Ends the children of a Ray worker with it; otherwise vLLM's process outlives it.
            "RAY_process_group_cleanup_enabled": "true",
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Address for drivers."""
        return f"127.0.0.2:{self.port}"

    @property
    def dashboard(self) -> str:
        """Address for `serve deploy`."""
        return f"http://127.0.0.1:{self._dashboard_port}"

    def start(self) -> None:
        """Starts both machines, and returns when the cluster knows them."""
        self._start_machine(
            "127.0.0.2",
            "--head",
            f"--port={self.port}",
            f"--temp-dir={self._folder}",
            f"--dashboard-port={self._dashboard_port}",
            "--disable-usage-stats",
        )
        self.wait_for_machines(1)
        self.start_second_machine()

    def start_second_machine(self) -> None:
        """Starts the second machine, or starts it again after it was killed."""
        self._start_machine("127.0.0.3", f"--address={self.address}")
        self.wait_for_machines(2)

    def _start_machine(self, address: str, *options: str) -> None:
        command = [
            str(BIN / "ray"),
            "start",
            "--block",
            f"--node-ip-address={address}",
            "--num-cpus=2",
            f"--object-store-memory={10**8}",
            f"--dashboard-agent-listen-port={free_port()}",
            *options,
        ]
        with (self._folder / f"{address}.log").open("ab") as log:
            self._machines.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def wait_for_machines(self, wanted: int) -> None:
        """Waits until the cluster reports this number of live machines."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError, ValueError):
                nodes = self.ask("/nodes?view=summary")["data"]["summary"]
                if sum(node["raylet"]["state"] == "ALIVE" for node in nodes) == wanted:
                    return
            time.sleep(0.2)
        raise AssertionError(f"the cluster does not have {wanted} machines: see {self._folder}")

    def ask(self, path: str) -> dict[str, Any]:
        """Asks the dashboard's HTTP API, as Ray's commands do, which start slowly."""
        headers = {"Authorization": f"Bearer {self._token}"}
        answer: dict[str, Any] = httpx.get(
            self.dashboard + path, headers=headers, timeout=30
        ).json()
        return answer

    def running(self, name: str, *, machine: int | None = None) -> list[int]:
        """Pids of the processes with this name in their command line, on one machine or both."""
        machines = self._machines if machine is None else [self._machines[machine]]
        return [pid for each in machines for pid, command in below(each.pid) if name in command]

    def kill_second_machine(self) -> int:
        """Kills the raylet and all its descendants; returns the number of processes."""
        return self._kill(self._machines.pop())

    def stop(self) -> None:
        """Kills both machines."""
        while self._machines:
            self._kill(self._machines.pop())

    def _kill(self, machine: subprocess.Popen[bytes]) -> int:
        found = [machine.pid, *(pid for pid, _ in below(machine.pid))]
        kill(found)
        machine.wait()
        return len(found)
