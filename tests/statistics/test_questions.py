"""Calibration sets with several pairs of each question, by seeded simulation.

The expected numbers are those of docs/design/guarantees.md, section 6.
"""

import math

import pytest

from tests.statistics.worlds.calibrations import DELTA, MIDDLING
from tests.statistics.worlds.questions import Questions, measured

RUNS = 300
AT_MOST = DELTA + 2.5 * math.sqrt(DELTA * (1 - DELTA) / RUNS)
WORLDS = [
    Questions(MIDDLING, 333, 3, 0.3),
    Questions(MIDDLING, 200, 5, 0.6),
    Questions(MIDDLING, 100, 10, 0.6),
]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rule", ["one", "adjusted"])
def test_one_pair_a_question_and_adjusted_counts_keep_the_promise(
    world: Questions, rule: str
) -> None:
    _, over = measured(world, rule, RUNS, seed=1)
    assert over <= AT_MOST


def test_adjusted_counts_cover_more_than_one_pair_a_question() -> None:
    for world in WORLDS:
        one, adjusted = (measured(world, rule, 150, seed=2)[0] for rule in ("one", "adjusted"))
        assert adjusted > one + 0.08


def test_ignored_questions_break_the_promise() -> None:
    # docs/concepts/guarantees.md says so. If this fails, correct the text.
    _, over = measured(Questions(MIDDLING, 100, 10, 0.6), "ignore", RUNS, seed=3)
    assert over > AT_MOST
