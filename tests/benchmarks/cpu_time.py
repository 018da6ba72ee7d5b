"""CPU time of one request, compared between two running services."""

import http.client
import itertools
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measurement import Figure, in_turns
from tests.drills.attacks.scene import Scene, running

# Requests in a block. Both services run all the time and serve short blocks in turns: the clock of
# a shared machine changes within seconds, but rarely within a block.
_BLOCK = {"/judge": 150, "/judge/batch": 15}
# Pairs of blocks in one repeat.
_PAIRS_OF_BLOCKS = 20


class Contestant(NamedTuple):
    """A service to measure: the folder of its code, and settings."""

    name: str
    code: Path
    settings: dict[str, str]


def compared(
    figure: str,
    contestants: Sequence[Contestant],
    path: str,
    body: Callable[[int], str],
    *,
    folder: Path,
    repeats: int,
    small: bool,
    note: str,
    on_sample: Callable[[], None],
) -> Figure:
    """Measures microseconds of CPU for one request to each of two services.

    Args:
        figure: Name of the figure.
        contestants: Ours and theirs; each has keys, the scripted engine and SQLite.
        path: Path of the request.
        body: Returns the body of the request with a number, from 0.
        folder: Folder for keys, stores and logs.
        repeats: Number of samples of each service; a sample is the median of 20 blocks.
        small: Whether a sample has only two blocks.
        note: Description of `theirs`.
        on_sample: Called after each sample.
    """
    blocks = 2 if small else _PAIRS_OF_BLOCKS
    with ExitStack() as stack:
        clients = []
        for name, code, settings in contestants:
            own = folder / f"{figure}-{name}"
            own.mkdir()
            scene = stack.enter_context(running(own, settings, code=code))
            client = _Client(scene, path, body)
            stack.callback(client.close)
            clients.append(client)

        def sample(repeat: int) -> tuple[float, float]:
            taken = in_turns([client.block for client in clients], blocks)
            ratios = [ours / theirs for ours, theirs in zip(*taken, strict=True)]
            theirs = statistics.median(taken[1])
            on_sample()
            # The median of the ratios of the blocks: a slow moment slows both blocks of a pair.
            return statistics.median(ratios) * theirs, theirs

        samples = [sample(repeat) for repeat in range(repeats)]
    ours, theirs = zip(*samples, strict=True)
    notes = (f"CPU time of the service per request; {note}",)
    return Figure(figure, "us", ours, theirs, target=1.05, at_most=True, notes=notes)


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
