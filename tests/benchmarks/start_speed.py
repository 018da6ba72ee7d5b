"""Seconds from the start of `scope-judge serve` with the demo judge until it is ready."""

import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.figures import Figure, Sampling
from tests.benchmarks.service import keys_file
from tests.integration.processes.server import SERVE, Server
from tests.patience import VLLM_START_S

NAMES = ("start-first", "start-again")
_WHAT = {
    "start-first": "nothing cached: new folders for caches and for the store",
    "start-again": "caches and store of an earlier start",
}


def starts(sampling: Sampling, names: Sequence[str]) -> list[Figure]:
    """Starts with new homes, each followed by one with the same home."""
    # The first start of a checkout compiles its bytecode, which an installation does.
    if not sampling.small:
        _started(sampling, sampling.folder / "home-warm-up")
    samples: dict[str, list[float]] = {name: [] for name in NAMES}
    for repeat in range(sampling.repeats):
        for name in NAMES:
            samples[name].append(_started(sampling, sampling.folder / f"home-{repeat}"))
    note = "`scope-judge serve` until the first 200 of /readyz"
    return [
        Figure(name, "s", tuple(samples[name]), (), None, notes=(f"{note}; {_WHAT[name]}",))
        for name in names
    ]


def _started(sampling: Sampling, home: Path) -> float:
    """Starts a service with this home, where its caches and its store are; returns seconds."""
    home.mkdir(exist_ok=True)
    environment = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "SCOPE_API_KEYS_FILE": str(keys_file(sampling.folder)),
    }
    begun = time.perf_counter()
    with Server(sampling.folder, environment, command=SERVE, start_timeout_s=VLLM_START_S):
        return time.perf_counter() - begun
