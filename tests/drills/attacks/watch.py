"""Watches a service from another process: memory, /healthz, and a key holder's /judge.

`python -m tests.drills.attacks.watch PORT PID KEY` samples until its standard input ends, and
prints JSON.
"""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.attacks.scene import ROOT, Scene, pair

_EVERY_S = {"memory": 0.02, "healthz": 0.025, "judge": 0.05}
_TIMEOUT_S = 60.0
_MIB = 2**20
_PAGE_BYTES = 4096


@dataclass(slots=True)
class Seen:
    """The figures of a watch.

    Args:
        idle_mib: Resident memory of the service before the attack.
        peak_mib: Largest resident memory during it.
        after_mib: Resident memory after it.
        healthz_p99_s: 99th percentile of the time to an answer of /healthz.
        healthz_max_s: Slowest answer of /healthz.
        judge: Status of the key holder's judgments, or the error without one -> count.
        judge_max_s: Slowest of the key holder's judgments.
    """

    idle_mib: float = 0.0
    peak_mib: float = 0.0
    after_mib: float = 0.0
    healthz_p99_s: float = 0.0
    healthz_max_s: float = 0.0
    judge: dict[str, int] = field(default_factory=dict)
    judge_max_s: float = 0.0

    @property
    def judge_failed(self) -> int:
        """Judgments of the key holder that did not end with 200."""
        return sum(self.judge.values()) - self.judge.get("200", 0)


class _Prober:
    """Sends one request after the other, over a kept connection or over new ones."""

    def __init__(self, port: int, method: str, path: str, *, kept: bool, **request: Any) -> None:
        self._port, self._method, self._path = port, method, path
        self._kept, self._request = kept, request
        self._connection: http.client.HTTPConnection | None = None

    def send(self) -> str:
        """The status of one request, or the error's name if there is none."""
        reused = self._connection is not None
        try:
            return self._sent()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as exc:
            self._close()
            # A server may close a kept connection between two requests; every client tries again.
            if not reused:
                return type(exc).__name__
        except OSError as exc:
            self._close()
            return type(exc).__name__
        try:
            return self._sent()
        except (OSError, http.client.HTTPException) as exc:
            self._close()
            return type(exc).__name__

    def _sent(self) -> str:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", self._port, timeout=_TIMEOUT_S
            )
        self._connection.request(self._method, self._path, **self._request)
        response = self._connection.getresponse()
        response.read()
        if not self._kept:
            self._close()
        return str(response.status)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Watcher:
    def __init__(self, port: int, pid: int, key: str) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._memory: list[float] = []
        self._latency: dict[str, list[float]] = {"healthz": [], "judge": []}
        self._statuses: dict[str, Counter[str]] = {"healthz": Counter(), "judge": Counter()}
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        probers = {
            "healthz": _Prober(port, "GET", "/healthz", kept=False),
            "judge": _Prober(
                port, "POST", "/judge", kept=True, headers=headers, body=json.dumps(pair(49))
            ),
        }
        works: dict[str, Callable[[], None]] = {"memory": self._measure}
        for name, prober in probers.items():
            works[name] = self._probing(name, prober)
        self._threads = [
            threading.Thread(target=self._repeat, args=(work, _EVERY_S[name]), daemon=True)
            for name, work in works.items()
        ]

    def _repeat(self, work: Callable[[], None], every_s: float) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            work()
            self._ended.wait(max(0.0, begun + every_s - time.monotonic()))

    def _measure(self) -> None:
        try:
            pages = int(Path(f"/proc/{self._pid}/statm").read_text(encoding="ascii").split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return
        self._memory.append(pages * _PAGE_BYTES / _MIB)

    def _probing(self, name: str, prober: _Prober) -> Callable[[], None]:
        def probe() -> None:
            begun = time.monotonic()
            status = prober.send()
            seconds = time.monotonic() - begun
            self._statuses[name][status] += 1
            # A slow probe delays the next ones: their delay counts as waiting time, too.
            while seconds > 0:
                self._latency[name].append(seconds)
                seconds -= _EVERY_S[name]

        return probe

    def start(self) -> float:
        """Measures idle memory, and begins the watch."""
        self._measure()
        for thread in self._threads:
            thread.start()
        return self._memory[0] if self._memory else 0.0

    def end(self, idle_mib: float) -> Seen:
        """Ends the watch, after the probes in flight."""
        self._ended.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_S)
        healthz = sorted(self._latency["healthz"]) or [0.0]
        return Seen(
            idle_mib=idle_mib,
            peak_mib=max(self._memory, default=0.0),
            after_mib=self._memory[-1] if self._memory else 0.0,
            healthz_p99_s=healthz[int(0.99 * (len(healthz) - 1))],
            healthz_max_s=healthz[-1],
            judge=dict(self._statuses["judge"]),
            judge_max_s=max(self._latency["judge"], default=0.0),
        )


def main() -> None:
    """Watches until standard input ends."""
    port, pid, key = sys.argv[1:]
    watcher = _Watcher(int(port), int(pid), key)
    idle_mib = watcher.start()
    print("watching", flush=True)
    sys.stdin.read()
    seen = watcher.end(idle_mib)
    print(json.dumps({name: getattr(seen, name) for name in Seen.__slots__}), flush=True)


@contextmanager
def watching(scene: Scene) -> Iterator[Seen]:
    """Watches the scene's service while the block runs; the figures are set after the block."""
    seen = Seen()
    command = [sys.executable, "-m", "tests.drills.attacks.watch"]
    command += [str(scene.port), str(scene.pid), scene.judge_key]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
        try:
            yield seen
        finally:
            process.stdin.close()
            # The figures are set even if the attack found that the service did not hold.
            for name, value in json.loads(process.stdout.read()).items():
                setattr(seen, name, value)


if __name__ == "__main__":
    main()
