"""CPU time of one request, compared between two services: with draws, or of two releases."""

import http.client
import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measurement import Figure, Sampling
from tests.benchmarks.report import named_release
from tests.drills.attacks.scene import ROOT, Scene, pair, running

# Requests in a block. Both services run all the time and serve short blocks in turns: the clock of
# a shared machine changes within seconds, but rarely within a block.
_BLOCK = {"/judge": 150, "/judge/batch": 15}
# Pairs of blocks in one repeat.
_PAIRS_OF_BLOCKS = 20
_BATCH = 64
_AUDIT_RATE = "0.05"
# Pairs below this number are examples of the calibration set, which are never drawn.
_FIRST = 1_000


class Contestant(NamedTuple):
    """A service to measure: the folder of its code, and settings."""

    name: str
    code: Path
    settings: dict[str, str]


def draws(sampling: Sampling) -> Figure:
    """Microseconds of CPU for one `/judge` of a new comparison, 5% of which are drawn."""
    return _compared(
        "audit-draws",
        [
            Contestant("drawing", ROOT, {"SCOPE_AUDIT_RATE": _AUDIT_RATE}),
            Contestant("not", ROOT, {}),
        ],
        "/judge",
        lambda number: json.dumps(pair(_FIRST + number)),
        sampling=sampling,
        note=f"theirs has SCOPE_AUDIT_RATE=0, ours {_AUDIT_RATE}; SQLite",
        target=None,
    )


def single(sampling: Sampling, other: Path) -> Figure:
    """Microseconds of CPU for one `/judge`, over those of another release."""
    return _releases("cpu-single", "/judge", json.dumps(pair(7)), sampling, other)


def batch(sampling: Sampling, other: Path) -> Figure:
    """Microseconds of CPU for one `/judge/batch`, over those of another release."""
    body = json.dumps({"comparisons": [pair(number) for number in range(_BATCH)]})
    return _releases("cpu-batch", "/judge/batch", body, sampling, other)


def _releases(name: str, path: str, body: str, sampling: Sampling, other: Path) -> Figure:
    return _compared(
        name,
        [Contestant("ours", ROOT, {}), Contestant("theirs", other, {})],
        path,
        lambda number: body,
        sampling=sampling,
        note=f"theirs is {named_release(other)}",
        target=1.05,
    )


def _compared(
    figure: str,
    contestants: Sequence[Contestant],
    path: str,
    body: Callable[[int], str],
    *,
    sampling: Sampling,
    note: str,
    target: float | None,
) -> Figure:
    """Measures microseconds of CPU for one request to each of two services.

    Args:
        figure: Name of the figure.
        contestants: Ours and theirs; each has keys, the scripted engine and SQLite.
        path: Path of the request.
        body: Returns the body of the request with a number, from 0.
        sampling: A sample is the median of 20 blocks, a small one of two.
        note: Description of `theirs`.
        target: Largest accepted ratio of ours to theirs; None without one.
    """
    blocks = Sampling(folder=sampling.folder, repeats=2 if sampling.small else _PAIRS_OF_BLOCKS)
    with ExitStack() as stack:
        clients = []
        for name, code, settings in contestants:
            own = sampling.folder / f"{figure}-{name}"
            own.mkdir()
            scene = stack.enter_context(running(own, settings, code=code))
            client = _Client(scene, path, body)
            stack.callback(client.close)
            clients.append(client)

        def sample(repeat: int) -> tuple[float, float]:
            taken = blocks.in_turns([client.block for client in clients])
            ratios = [ours / theirs for ours, theirs in zip(*taken, strict=True)]
            theirs = statistics.median(taken[1])
            sampling.on_sample()
            # The median of the ratios of the blocks: a slow moment slows both blocks of a pair.
            return statistics.median(ratios) * theirs, theirs

        samples = [sample(repeat) for repeat in range(sampling.repeats)]
    ours, theirs = zip(*samples, strict=True)
    notes = (f"CPU time of the service per request; {note}",)
    return Figure(figure, "us", ours, theirs, target=target, at_most=True, notes=notes)


class _Client:
    """Sends one request after the other to a service."""

    def __init__(self, scene: Scene, path: str, body: Callable[[int], str]) -> None:
        self._pid = scene.pid
        self._connection = http.client.HTTPConnection("127.0.0.1", scene.port)
        self._path = path
        self._bodies = map(body, itertools.count())
        self._headers = {
            "Authorization": f"Bearer {scene.judge_key}",
            "Content-Type": "application/json",
        }

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def block(self, repeat: int) -> float:
        """Mean microseconds of CPU per request over a block; `repeat` is not used."""
        count = _BLOCK[self._path]
        bodies = list(itertools.islice(self._bodies, count))
        # The service may have closed the connection during the other one's block; the first request
        # opens another one.
        self._connection.close()
        begun = _cpu_ns(self._pid)
        for body in bodies:
            self._connection.request("POST", self._path, body, self._headers)
            response = self._connection.getresponse()
            content = response.read()
            if response.status != 200:
                raise RuntimeError(f"{self._path} answered {response.status}: {content[:500]!r}")
        return (_cpu_ns(self._pid) - begun) / count / 1000


def _cpu_ns(pid: int) -> int:
    """CPU time of all threads; more precise than the clock ticks of /proc/PID/stat."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue  # The thread has ended in the meantime.
    return spent
