"""Measures what abstaining is worth for rewards, on groups of responses of known quality.

A group has one task of a family and eight answers to it, each further from the right one than the
one before. The judge compares all pairs of a group once, through a running service. The rewards of
every rule are then computed from these judgments, with the functions that the service uses.
"""

import math
import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import httpx
import numpy as np

from app.core.comparison import Criterion, Turn
from app.judging.rewards import Group as RewardedGroup
from app.judging.rewards import Opponents, Pairing, Players, Result, RewardRule, pairs_of, standings

SIZE = 8
GROUPS, CALIBRATION_PAIRS = 200, 1500
Points = Literal["hard", "soft"]
# Alpha, None if the judge always answers; points of a comparison; opponents of each response.
RULES: tuple[tuple[float | None, Points, Opponents], ...] = (
    (None, "hard", "all"),
    (None, "soft", "all"),
    (0.1, "hard", "all"),
    (0.1, "hard", 4),
    (0.1, "soft", "all"),
    (0.2, "hard", "all"),
)
_CALIBRATION = "gating"
_GROUPS_AT_ONCE = 10
# Distances of the answers to sums and differences from the right one.
_NUMBER_STEPS = (0, 1, 2, 3, 5, 8, 13, 21)


class Group(NamedTuple):
    """A question with eight different answers, from the right one to the worst."""

    family: str
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """The judgment of one pair: answer `a` is better than `b`, in truth a < b."""

    p_bar: float
    risk_level: float | None

    def points(self, alpha: float | None, kind: Points) -> float | None:
        """The points of answer `a`; None if the judgment is not accepted."""
        if self.p_bar == 0.5:
            return None
        if alpha is not None and (self.risk_level is None or self.risk_level > alpha):
            return None
        return 2 * self.p_bar - 1 if kind == "soft" else math.copysign(1.0, self.p_bar - 0.5)


@dataclass(frozen=True)
class Row:
    """The rewards of one rule against the truth, over all groups.

    Args:
        alpha: None if the judge always answers.
        accepted: Share of the comparisons that are accepted.
        wrong_of_accepted: Share of wrong verdicts among the accepted comparisons, which alpha is a
            promise about; None if there are none.
        unordered: Share of the pairs with equal rewards, or without one of them.
        wrong_of_ordered: Share of wrong ones among the ordered pairs; None if there are none.
        without_reward: Share of the responses that get no reward.
    """

    alpha: float | None
    kind: str
    opponents: Opponents
    accepted: float
    wrong_of_accepted: float | None
    unordered: float
    wrong_of_ordered: float | None
    without_reward: float


def groups(seed: int) -> Iterator[Group]:
    """Yields groups of the families copy, reverse, sum and difference in turn."""
    rng = random.Random(seed)
    while True:
        word = _word(rng, SIZE)
        yield Group("copy", f"Write this word once more: {word}", _misspelt(rng, word))
        word = _word(rng, SIZE - 1)
        yield Group("reverse", f"Write this word backwards: {word}", _misspelt(rng, word[::-1]))
        first, second = rng.randint(30, 99), rng.randint(1, 99)
        yield Group("sum", f"What is {first} + {second}?", _numbers(rng, first + second))
        first, second = rng.randint(60, 99), rng.randint(1, 30)
        yield Group("difference", f"What is {first} - {second}?", _numbers(rng, first - second))


def _word(rng: random.Random, length: int) -> str:
    begin = rng.randint(0, 1)
    letters = ("bcdfghklmnprstvz", "aeiou")
    return "".join(rng.choice(letters[(begin + i) % 2]) for i in range(length))


def _misspelt(rng: random.Random, word: str) -> tuple[str, ...]:
    """The word, and the word with 1, 2, ... 7 wrong letters at places of their own."""
    found = []
    for wrong in range(SIZE):
        letters = list(word)
        for place in rng.sample(range(len(word)), wrong):
            letters[place] = rng.choice([c for c in string.ascii_lowercase if c != word[place]])
        found.append("".join(letters))
    return tuple(found)


def _numbers(rng: random.Random, right: int) -> tuple[str, ...]:
    return tuple(str(right + rng.choice((-1, 1)) * step) for step in _NUMBER_STEPS)


def measure(client: httpx.Client) -> list[Row]:
    """Calibrates on one pair of each of 1,500 groups, then rewards 200 other groups."""
    examples = [_example(rng, group) for rng, group in _drawn(seed=1, count=CALIBRATION_PAIRS)]
    client.delete(f"/calibrations/{_CALIBRATION}")
    for start in range(0, len(examples), 500):
        body = {"calibration": _CALIBRATION, "examples": examples[start : start + 500]}
        client.post("/calibrate", json=body).raise_for_status()
    drawn = [group for _, group in _drawn(seed=2, count=GROUPS)]
    judged = list(_judged(client, drawn))
    client.delete(f"/calibrations/{_CALIBRATION}")
    return [
        row_of(drawn, judged, alpha=alpha, kind=kind, opponents=opponents)
        for alpha, kind, opponents in RULES
    ]


def _drawn(*, seed: int, count: int) -> Iterator[tuple[random.Random, Group]]:
    stream = groups(seed)
    return ((random.Random(f"{seed} {i}"), next(stream)) for i in range(count))


def _example(rng: random.Random, group: Group) -> dict[str, Any]:
    """A random pair of a group, in random order."""
    first, second = rng.sample(range(SIZE), 2)
    return {
        "question": group.question,
        "response_a": group.answers[first],
        "response_b": group.answers[second],
        "label": "A" if first < second else "B",
    }


def _judged(client: httpx.Client, drawn: Sequence[Group]) -> Iterator[dict[Pairing, Judged]]:
    """Yields the judgments of all pairs of each group."""
    for start in range(0, len(drawn), _GROUPS_AT_ONCE):
        some = drawn[start : start + _GROUPS_AT_ONCE]
        asked = [{"question": each.question, "responses": each.answers} for each in some]
        body = {"groups": asked, "comparisons": True, "calibration": _CALIBRATION, "alpha": 0.1}
        answer = client.post("/rewards/groups", json=body).raise_for_status().json()
        for group in answer["groups"]:
            assert not group["errors"], "a comparison has failed"
            yield {
                Pairing(each["a"], each["b"]): Judged(
                    each["judgment"]["p_bar"], each["judgment"]["risk_level"]
                )
                for each in group["comparisons"]
            }


def row_of(
    drawn: Sequence[Group],
    judged: Sequence[dict[Pairing, Judged]],
    *,
    alpha: float | None,
    kind: Points,
    opponents: Opponents,
) -> Row:
    """Rewards all groups by one rule, and compares the rewards with the truth."""
    counts = np.zeros(3)
    criterion = Criterion(alpha=alpha, guarantee="marginal", delta=None, calibration="")
    rule = RewardRule(criterion=criterion, kind=kind, opponents=opponents)
    accepted = mistaken = compared = without = 0
    for group, judgments in zip(drawn, judged, strict=True):
        players = Players.among(group.answers)
        asked = RewardedGroup(
            question=(Turn("user", group.question),), responses=tuple(group.answers)
        )
        pairs = pairs_of(asked, players, opponents)
        results = [Result(pair=pair, points=judgments[pair].points(alpha, kind)) for pair in pairs]
        rewards = [row.reward for row in standings(players, results, rule)]
        points = [result.points for result in results if result.points is not None]
        accepted += len(points)
        mistaken += sum(each < 0 for each in points)
        compared += len(results)
        without += rewards.count(None)
        counts += _orders(rewards)
    right, wrong, unordered = counts / counts.sum()
    return Row(
        alpha=alpha,
        kind=kind,
        opponents=opponents,
        accepted=accepted / compared,
        wrong_of_accepted=mistaken / accepted if accepted else None,
        unordered=float(unordered),
        wrong_of_ordered=float(wrong / (right + wrong)) if right + wrong else None,
        without_reward=without / (SIZE * len(drawn)),
    )


def _orders(rewards: Sequence[float | None]) -> tuple[int, int, int]:
    """Numbers of pairs in the right order, in the wrong one, and in none; the best is first."""
    right = wrong = unordered = 0
    for i, better in enumerate(rewards):
        for worse in rewards[i + 1 :]:
            # Sums of equal points in another order may differ in their last digits.
            if better is None or worse is None or abs(better - worse) < 1e-9:
                unordered += 1
            elif better > worse:
                right += 1
            else:
                wrong += 1
    return right, wrong, unordered
