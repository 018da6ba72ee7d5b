"""CPU time of one request, compared with the same request to another release of the service."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.cpu_time import Contestant, compared
from tests.benchmarks.measurement import Figure
from tests.benchmarks.report import named_release
from tests.drills.attacks.scene import ROOT, pair

_BATCH = 64


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
        self._small = small
        self._on_sample = on_sample

    def singles(self) -> Figure:
        """Microseconds of CPU for one `/judge`."""
        return self._figure("cpu-single", "/judge", json.dumps(pair(7)))

    def batches(self) -> Figure:
        """Microseconds of CPU for one `/judge/batch` of 64 comparisons."""
        comparisons = [pair(number) for number in range(_BATCH)]
        return self._figure("cpu-batch", "/judge/batch", json.dumps({"comparisons": comparisons}))

    def _figure(self, name: str, path: str, body: str) -> Figure:
        return compared(
            name,
            [Contestant("ours", ROOT, {}), Contestant("theirs", self._other, {})],
            path,
            lambda number: body,
            folder=self._folder,
            repeats=self._repeats,
            small=self._small,
            note=f"theirs is {named_release(self._other)}",
            on_sample=self._on_sample,
        )
