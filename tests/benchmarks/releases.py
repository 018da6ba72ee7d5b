"""CPU time of one request, compared with the same request to another release of the service."""

import http.client
import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.measurement import Figure, in_turns
from tests.drills.attacks.scene import ROOT, Scene, pair, running

# Requests in a block. Both releases run all the time and serve short blocks in turns: the clock of
# a shared machine changes within seconds, but rarely within a block.
_BLOCK = {"/judge": 150, "/judge/batch": 15}
_BATCH = 64
# Pairs of blocks in one repeat.
_PAIRS_OF_BLOCKS = 20


class Releases:
    """Two releases of `scope-judge serve`, with keys, the scripted engine and SQLite.

    Args:
        folder: Folder for keys, stores and logs.
        other: Folder whose `app` package is compared with this one's.
        repeats: Number of samples of each release; a sample is the median of 20 blocks.
        small: Whether a sample has only two blocks.
        on_sample: Called after each sample.
    """

    def __init__(
        self,
        folder: Path,
        other: Path,
        *,
        repeats: int,
        small: bool,
        on_sample: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._other = other
        self._repeats = repeats
        self._blocks = 2 if small else _PAIRS_OF_BLOCKS
        self._on_sample = on_sample

    def singles(self) -> Figure:
        """Microseconds of CPU for one `/judge`."""
        return self._figure("cpu-single", "/judge", json.dumps(pair(7)))

    def batches(self) -> Figure:
        """Microseconds of CPU for one `/judge/batch` of 64 comparisons."""
        comparisons = [pair(number) for number in range(_BATCH)]
        return self._figure("cpu-batch", "/judge/batch", json.dumps({"comparisons": comparisons}))

    def _figure(self, name: str, path: str, body: str) -> Figure:
        with ExitStack() as stack:
            clients = []
            for kind, code in (("ours", ROOT), ("theirs", self._other)):
                folder = self._folder / f"{name}-{kind}"
                folder.mkdir()
                client = _Client(stack.enter_context(running(folder, code=code)), path, body)
                stack.callback(client.close)
                clients.append(client)

            def sample(repeat: int) -> tuple[float, float]:
                blocks = in_turns([client.block for client in clients], self._blocks)
                ratios = [ours / theirs for ours, theirs in zip(*blocks, strict=True)]
                theirs = statistics.median(blocks[1])
                self._on_sample()
                # The median of the ratios of the blocks: a slow moment slows both blocks of a pair.
                return statistics.median(ratios) * theirs, theirs

            samples = [sample(repeat) for repeat in range(self._repeats)]
        ours, theirs = zip(*samples, strict=True)
        return Figure(
            name,
            "us",
            ours,
            theirs,
            target=1.05,
            at_most=True,
            notes=(f"CPU time of the service per request; theirs is {self._other}",),
        )


class _Client:
    """Sends the same request to a service again and again."""

    def __init__(self, scene: Scene, path: str, body: str) -> None:
        self._pid = scene.pid
        self._connection = http.client.HTTPConnection("127.0.0.1", scene.port)
        self._path = path
        self._body = body
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
        begun = _cpu_ns(self._pid)
        for _ in range(count):
            self._connection.request("POST", self._path, self._body, self._headers)
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
