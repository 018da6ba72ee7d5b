"""Random surroundings of a test run, so that tests hold on machines other than the author's."""

import os
import random
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Offsets of 45 and 30 minutes, both ends of the calendar, and a change of the clock in both halves
# of the year.
TIME_ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
)


def draw(seed: int) -> tuple[dict[str, str], Path]:
    """Draws facts of a machine that must not change the outcome of a test.

    Returns the variables that tests and their children read, and the outermost folder that was
    made. The same seed gives the same ones on a machine.
    """
    rng = random.Random(seed)
    folder, outermost = _make_folder(length=rng.randint(20, 150), depth=rng.randint(1, 5))
    variables = {
        "TMPDIR": str(folder),
        "COLUMNS": str(rng.randint(60, 200)),
        "TZ": rng.choice(TIME_ZONES),
        "LC_ALL": rng.choice(["C.UTF-8", *_german_locales()]),
        "PYTHONHASHSEED": str(rng.randrange(2**32)),
    }
    shown = "; ".join(f"{name}={value}" for name, value in variables.items())
    variables["TESTS_SURROUNDINGS"] = f"{shown}; repeat with SEED={seed}"
    return {**variables, "TESTS_SEED": str(seed)}, outermost


def _make_folder(*, length: int, depth: int) -> tuple[Path, Path]:
    """Makes a temporary folder with a path of this length; returns it and the outermost one."""
    system = Path(tempfile.gettempdir())
    # mkdtemp adds eight letters of its own.
    room = max(0, length - len(str(system)) - len("/12345678"))
    depth = min(depth, 1 + room // 2)
    share = room // depth
    outermost = Path(tempfile.mkdtemp(prefix="d" * (room - share * (depth - 1)), dir=system))
    folder = outermost.joinpath(*["d" * (share - 1)] * (depth - 1))
    folder.mkdir(parents=True, exist_ok=True)
    return folder, outermost


def _german_locales() -> list[str]:
    """The German locale, where the machine has one."""
    try:
        answer = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    names = answer.stdout.split()
    return [name for name in names if name.lower() in ("de_de.utf8", "de_de.utf-8")][:1]


def shuffled_ranks(names: Sequence[str], seed: int) -> Mapping[str, int]:
    """A random place for each name; names may repeat, and their order does not matter."""
    order = sorted(set(names))
    random.Random(seed).shuffle(order)
    return {name: place for place, name in enumerate(order)}


def drawn_seed() -> int | None:
    """The seed of this run's surroundings; None where pytest was started by itself."""
    seed = os.environ.get("TESTS_SEED")
    return None if seed is None else int(seed)
