"""Random surroundings of a test run, so that tests hold on machines other than the author's."""

import random
from collections.abc import Mapping, Sequence

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


def draw(seed: int) -> dict[str, str]:
    """Draws facts of a machine that must not change the outcome of a test, as variables."""
    rng = random.Random(seed)
    variables = {
        "COLUMNS": str(rng.randint(60, 200)),
        "TZ": rng.choice(TIME_ZONES),
        "PYTHONHASHSEED": str(rng.randrange(2**32)),
    }
    shown = "; ".join(f"{name}={value}" for name, value in variables.items())
    variables["TESTS_SURROUNDINGS"] = f"{shown}; repeat with SEED={seed}"
    return {**variables, "TESTS_SEED": str(seed)}


def shuffled_ranks(names: Sequence[str], seed: int) -> Mapping[str, int]:
    """A random place for each name; names may repeat, and their order does not matter."""
    order = sorted(set(names))
    random.Random(seed).shuffle(order)
    return {name: place for place, name in enumerate(order)}
