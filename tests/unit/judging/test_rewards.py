"""Pairs and rewards of a group of responses: degrees, costs, equal texts, and a naive scorer."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.comparison import Criterion, Turn
from app.core.messages import without_thought
from app.judging.rewards import (
    Group,
    NoPoints,
    Opponents,
    Pairing,
    Players,
    Result,
    RewardRule,
    number_of_pairs,
    pairs_of,
    standings,
)

RULE = RewardRule(
    criterion=Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="default")
)
NULL = replace(RULE, empty="null")


def scheduled(
    responses: Sequence[str],
    opponents: Opponents = "all",
    *,
    question: str = "Which?",
    reference: str | None = None,
) -> tuple[Players, tuple[Pairing, ...]]:
    group = Group(
        question=(Turn("user", question),), responses=tuple(responses), reference=reference
    )
    players = Players.among(responses, reference)
    return players, pairs_of(group, players, opponents)


def texts(n: int) -> list[str]:
    return [f"response {i}" for i in range(n)]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, 17, 18, 100])
def test_each_response_meets_k_others_and_no_pair_meets_twice(k: int) -> None:
    for n in range(2, 20):
        _, judged = scheduled(texts(n), k)
        assert len({frozenset(pair) for pair in judged}) == len(judged) == number_of_pairs(n, k)
        assert all(pair.a < pair.b for pair in judged)
        degrees = Counter(player for pair in judged for player in pair)
        least = min(k, n - 1)
        # With n and k odd the sum of the degrees, which is even, cannot be n k.
        one_more = int(k < n - 1 and n * k % 2)
        assert Counter(degrees.values()) == +Counter({least: n - one_more, least + 1: one_more})
        assert len(judged) == min((n * k + 1) // 2, n * (n - 1) // 2) <= n * k


def test_all_opponents_are_every_pair() -> None:
    assert set(scheduled(texts(4))[1]) == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert number_of_pairs(4, "all") == 6
    assert number_of_pairs(0, "all") == number_of_pairs(1, "all") == number_of_pairs(1, 3) == 0


def test_the_pairs_depend_on_the_texts_and_not_on_their_order() -> None:
    there = texts(9)
    shuffled = random.Random(3).sample(there, 9)

    def met(responses: Sequence[str], question: str = "Which?") -> set[frozenset[str]]:
        _, found = scheduled(responses, 2, question=question)
        return {frozenset((responses[a], responses[b])) for a, b in found}

    assert met(there) == met(there) == met(shuffled)
    assert met(there) != met(there, "Another question?")


def naive(
    responses: Sequence[str], points: dict[frozenset[int], dict[int, float | None]], loses: bool
) -> list[float | None]:
    """Rewards by a double loop over all responses; `points` has those of each judged pair."""
    rewards: list[float | None] = []
    for mine in responses:
        met = dict[str, float]()
        for j, other in enumerate(responses):
            blank, other_blank = not mine.strip(), not other.strip()
            if (blank and other_blank) or mine == other:
                continue
            if blank or other_blank:
                continue
            i = responses.index(mine)
            of_pair = points.get(frozenset((i, responses.index(responses[j]))))
            if of_pair is not None and (number := of_pair[i]) is not None:
                met[other] = number
        if not mine.strip():
            rewards.append(-1.0 if loses and any(map(str.strip, responses)) else None)
        else:
            rewards.append(sum(met.values()) / len(met) if met else None)
    return rewards


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "", " \n"]), min_size=1, max_size=12),
    st.sampled_from([1, 2, 3, 5, "all"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_the_rewards_are_those_of_a_naive_double_loop(
    responses: list[str], opponents: Opponents, loses: bool, seed: int
) -> None:
    draw = random.Random(seed)
    players, pairs = scheduled(responses, opponents)
    results = [
        Result(pair=pair, points=draw.choice((None, 1.0, -1.0, draw.uniform(-1, 1))))
        for pair in pairs
    ]
    points = {
        frozenset(each.pair): {
            each.pair.a: each.points,
            each.pair.b: None if each.points is None else -each.points,
        }
        for each in results
    }
    rows = standings(players, results, replace(RULE, empty="loses" if loses else "null"))
    expected_rewards = naive(responses, points, loses)
    for text, row, expected in zip(responses, rows, expected_rewards, strict=True):
        assert row.reward == (None if expected is None else pytest.approx(expected, abs=1e-12))
        assert (row.reward is None) == (row.reason is not None)
        assert (row.accepted == 0) == (row.reward is None or not text.strip())
        assert row.accepted <= row.compared
        assert row.reward is None or -1.0 <= row.reward <= 1.0
    # Equal texts, and all blank ones, get identical rewards.
    merged = [text if text.strip() else "" for text in responses]
    assert len(set(zip(merged, rows, strict=True))) == len(set(merged))


def test_a_missing_reward_has_its_reason() -> None:
    players, pairs = scheduled(["a", "b", "c", ""])
    of_pair: dict[tuple[int, int], NoPoints] = {
        (0, 1): "failed",
        (0, 2): "failed",
        (1, 2): "abstained",
    }
    for reason in ("abstained", "suspended", "infeasible"):
        of_pair[1, 2] = reason
        rows = standings(
            players,
            [Result(pair=pair, points=None, reason=of_pair[pair]) for pair in pairs],
            NULL,
        )
        assert [row.reason for row in rows] == ["failed", reason, reason, "empty"]
    for responses, reasons in (
        (["a", "a"], ["tied", "tied"]),
        (["", " "], ["tied", "tied"]),
        (["a"], ["unopposed"]),
    ):
        rows = standings(scheduled(responses)[0], [], RULE)
        assert [row.reason for row in rows] == reasons
        assert all(row.reward is None for row in rows)
    rows = standings(scheduled(["a", ""])[0], [], NULL)
    assert [row.reason for row in rows] == ["unopposed", "empty"]


@pytest.mark.parametrize(
    ("min_accepted", "rewards", "reasons"),
    [
        (1, [1.0, -0.25, -0.5], [None, None, None]),
        (0.5, [1.0, -0.25, -0.5], [None, None, None]),
        (2, [None, -0.25, None], ["few_accepted", None, "few_accepted"]),
        (0.6, [None, -0.25, None], ["few_accepted", None, "few_accepted"]),
        (3, [None] * 3, ["few_accepted"] * 3),
    ],
)
def test_a_reward_needs_enough_accepted_comparisons(
    min_accepted: float, rewards: list[float | None], reasons: list[str | None]
) -> None:
    players, pairs = scheduled(["a", "b", "c", ""])
    points = {(0, 1): 1.0, (0, 2): None, (1, 2): 0.5}
    rows = standings(
        players,
        [Result(pair=pair, points=points[pair]) for pair in pairs],
        replace(RULE, min_accepted=min_accepted),
    )
    assert [row.reward for row in rows] == [*rewards, -1.0]
    assert [row.reason for row in rows] == [*reasons, None]


def test_a_response_that_is_too_long_everywhere_may_lose_and_nobody_wins_from_it() -> None:
    players, pairs = scheduled(["long", "longer", "x"])
    results = [
        Result(pair=pair, points=None, reason="failed", overlong=pair.b if pair.b == 1 else 0)
        for pair in pairs
    ]
    # `long` was the shorter one of two that are too long together.
    results[-1] = Result(pair=pairs[-1], points=None, reason="failed", overlong=1)
    rows = standings(players, results, replace(RULE, overlong="loses"))
    assert [row.reward for row in rows] == [None, -1.0, None]
    assert [row.reason for row in rows] == ["failed", None, "failed"]
    assert [row.reward for row in standings(players, results, RULE)] == [None] * 3


def test_each_different_text_meets_the_reference_once() -> None:
    responses = ["better", "worse", "reference", "better", "", "unsure"]
    players, pairs = scheduled(responses, reference="reference")
    assert pairs == ((0, 6), (1, 6), (5, 6))
    points = dict(zip(pairs, (1.0, -1.0, None), strict=True))
    results = [Result(pair=pair, points=points[pair]) for pair in pairs]
    rows = standings(players, results, RULE)
    # The reference's own points are nobody's: the equal response is tied.
    assert [row.reward for row in rows] == [1.0, -1.0, None, 1.0, -1.0, None]
    assert [row.reason for row in rows] == [None, None, "tied", None, None, "abstained"]
    rows = standings(players, results, NULL)
    assert [row.reason for row in rows] == [None, None, "tied", None, "empty", "abstained"]


@pytest.mark.parametrize(
    ("response", "judged"),
    [
        ("<think>one</think> two", "two"),
        # The chat template has written <think> into the prompt.
        ("one</think>\ntwo", "two"),
        ("<think>one", ""),
        ("one <think>two</think> three", "one <think>two</think> three"),
        ("one", "one"),
    ],
)
def test_only_a_thought_at_the_beginning_is_left_out(response: str, judged: str) -> None:
    assert without_thought(response) == judged
