"""The pairs that the judges are measured on, all of them from held-out pages."""

import itertools
import random
from typing import Literal

from app.demo.pairs import Pair
from tests.tuned_judge.pairs import SEEN, UNSEEN, pairs

Name = Literal["seen", "unseen"]
NAMES: tuple[Name, ...] = ("seen", "unseen")
_SEED = 20261122
# Seen families have 16 pairs each, unseen ones 60 each.
_SIZES = {"seen": 16 * len(SEEN), "unseen": 60 * len(UNSEEN)}


def measured_pairs(name: Name) -> list[Pair]:
    """The pairs of seen or of unseen families in random order; the same ones on every call."""
    families = tuple(SEEN if name == "seen" else UNSEEN)
    stream = pairs(_SEED, held_out=True, families=families)
    drawn = list(itertools.islice(stream, _SIZES[name]))
    random.Random(_SEED).shuffle(drawn)
    return drawn
