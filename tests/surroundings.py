"""Random surroundings of a test run, so that tests hold on machines other than the author's."""

import os
import random
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Facts of a machine that must not change the outcome of a test.

    Args:
        seed: Draws everything else, and the order of the test files.
        folder_length: Characters of the temporary folder's path; longer where the system's own is.
        folder_depth: Folders that the path adds to the system's temporary folder.
    """

    seed: int
    folder_length: int
    folder_depth: int
    columns: int
    time_zone: str
    locale: str
    hash_seed: int

    @classmethod
    def draw(cls, seed: int, locales: Sequence[str]) -> "Surroundings":
        """Draws surroundings; the same seed gives the same ones on a machine.

        Args:
            seed: Any integer.
            locales: Names of the locales that the machine has.
        """
        rng = random.Random(seed)
        german = [name for name in locales if name.lower() in ("de_de.utf8", "de_de.utf-8")]
        return cls(
            seed=seed,
            folder_length=rng.randint(20, 150),
            folder_depth=rng.randint(1, 5),
            columns=rng.randint(60, 200),
            time_zone=rng.choice(TIME_ZONES),
            locale=rng.choice(["C.UTF-8", *german[:1]]),
            hash_seed=rng.randrange(2**32),
        )

    def __str__(self) -> str:
        return (
            f"temporary folder of {self.folder_length} characters, {self.folder_depth} deep; "
            f"{self.columns} columns; TZ={self.time_zone}; LC_ALL={self.locale}; "
            f"PYTHONHASHSEED={self.hash_seed}; repeat with SEED={self.seed}"
        )

    def environment(self, folder: Path) -> Mapping[str, str]:
        """The variables that tests and their children read.

        Args:
            folder: The temporary folder.
        """
        return {
            "TMPDIR": str(folder),
            "COLUMNS": str(self.columns),
            "TZ": self.time_zone,
            "LC_ALL": self.locale,
            "PYTHONHASHSEED": str(self.hash_seed),
            "TESTS_SEED": str(self.seed),
            "TESTS_SURROUNDINGS": str(self),
        }

    def make_folder(self) -> tuple[Path, Path]:
        """Makes the temporary folder; returns it, and the outermost folder that was made."""
        system = Path(tempfile.gettempdir())
        # mkdtemp adds eight letters of its own.
        room = max(0, self.folder_length - len(str(system)) - len("/12345678"))
        depth = min(self.folder_depth, 1 + room // 2)
        share = room // depth
        outermost = Path(tempfile.mkdtemp(prefix="d" * (room - share * (depth - 1)), dir=system))
        folder = outermost.joinpath(*["d" * (share - 1)] * (depth - 1))
        folder.mkdir(parents=True, exist_ok=True)
        return folder, outermost


def shuffled_ranks(names: Sequence[str], seed: int) -> Mapping[str, int]:
    """A random place for each name; names may repeat, and their order does not matter."""
    order = sorted(set(names))
    random.Random(seed).shuffle(order)
    return {name: place for place, name in enumerate(order)}


def locales_of_machine() -> list[str]:
    """The names that `locale -a` prints; none where there is no such program."""
    try:
        answer = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return answer.stdout.split()


def drawn_seed() -> int | None:
    """The seed of this run's surroundings; None where pytest was started by itself."""
    seed = os.environ.get("TESTS_SEED")
    return None if seed is None else int(seed)
