"""CPU time of a single judgment with draws for audits, compared with none."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.cpu_time import Contestant, compared
from tests.benchmarks.measurement import Figure
from tests.drills.attacks.scene import ROOT, pair

_RATE = "0.05"
# Pairs below this number are examples of the calibration set, which are never drawn.
_FIRST = 1_000


def audit_draws(
    folder: Path, *, repeats: int, small: bool, on_sample: Callable[[], None]
) -> Figure:
    """Microseconds of CPU for one `/judge` of a new comparison, 5% of which are drawn.

    Args:
        folder: Folder for keys, stores and logs.
        repeats: Number of samples.
        small: Whether a sample is small.
        on_sample: Called after each sample.
    """
    return compared(
        "audit-draws",
        [Contestant("drawing", ROOT, {"SCOPE_AUDIT_RATE": _RATE}), Contestant("not", ROOT, {})],
        "/judge",
        lambda number: json.dumps(pair(_FIRST + number)),
        folder=folder,
        repeats=repeats,
        small=small,
        note=f"theirs has SCOPE_AUDIT_RATE=0, ours {_RATE}; SQLite",
        on_sample=on_sample,
    )
