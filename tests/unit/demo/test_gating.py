"""The measurement of gating: groups of known order, and figures derived by hand."""

import itertools
import math

import pytest

from app.judging.tournament import Pairing
from tests.demo_judge.gating import SIZE, Group, Judged, _orders, _tau_b, groups, row_of

DRAWN = list(itertools.islice(groups(7), 40))


def test_a_group_has_different_answers_with_the_right_one_first() -> None:
    assert {group.family for group in DRAWN} == {"copy", "reverse", "sum", "difference"}
    for group in DRAWN:
        assert len(set(group.answers)) == SIZE
        word = group.question.split()[-1]
        if group.family in ("copy", "reverse"):
            right = word if group.family == "copy" else word[::-1]
            wrong = [sum(map(str.__ne__, right, answer)) for answer in group.answers]
            assert wrong == list(range(SIZE))
        else:
            first, sign, second = group.question.rstrip("?").split()[-3:]
            right_number = int(first) + (1 if sign == "+" else -1) * int(second)
            off = [abs(int(answer) - right_number) for answer in group.answers]
            assert off == sorted(set(off))
            assert off[0] == 0


def test_an_equal_seed_draws_the_same_groups() -> None:
    assert list(itertools.islice(groups(7), 40)) == DRAWN
    assert list(itertools.islice(groups(8), 40)) != DRAWN


def test_pairs_are_right_wrong_or_unordered() -> None:
    # (1, 0) right; (1, None), (0, None), (None, 1) and (1, 1) unordered; (0, 1) wrong.
    assert _orders([1.0, 0.0, None, 1.0]) == (1, 1, 4)
    assert _orders([None] * 3) == (0, 0, 3)


def test_tau_b_is_kendalls_with_ties_of_the_rewards() -> None:
    assert _tau_b(28, 0, 0) == 1.0
    assert _tau_b(0, 28, 0) == -1.0
    assert _tau_b(0, 0, 28) == 0.0
    # Truth 4 > 3 > 2 > 1, rewards 2, 1, 1, 0: five pairs in order, one tie; 5 / sqrt(5 * 6).
    assert _tau_b(*_orders([2.0, 1.0, 1.0, 0.0])) == pytest.approx(5 / math.sqrt(30))


def judged_by(p_bar: float, risk_level: float | None) -> list[dict[Pairing, Judged]]:
    pairs = itertools.starmap(Pairing, itertools.combinations(range(SIZE), 2))
    one = dict.fromkeys(pairs, Judged(p_bar, risk_level))
    return [one] * len(DRAWN)


def test_a_judge_that_is_always_right_orders_everything() -> None:
    row = row_of(DRAWN, judged_by(0.9, 0.01), alpha=0.05, kind="hard", opponents="all")
    assert (row.wrong, row.unordered, row.tau_b, row.prompts) == (0.0, 0.0, 1.0, 56.0)
    assert (row.accepted, row.wrong_of_accepted, row.without_reward) == (1.0, 0.0, 0.0)
    row = row_of(DRAWN, judged_by(0.1, 0.01), alpha=None, kind="soft", opponents="all")
    assert (row.wrong, row.tau_b, row.wrong_of_ordered) == (1.0, -1.0, 1.0)
    assert row.wrong_of_accepted == 1.0
    ring = row_of(DRAWN, judged_by(0.9, 0.01), alpha=None, kind="hard", opponents=2)
    assert ring.prompts == 16.0
    assert 0.0 < ring.unordered < 1.0


def test_a_judge_that_abstains_orders_nothing() -> None:
    for p_bar, level in ((0.9, None), (0.9, 0.06), (0.5, 0.01)):
        row = row_of(DRAWN, judged_by(p_bar, level), alpha=0.05, kind="hard", opponents="all")
        assert (row.unordered, row.tau_b, row.without_reward) == (1.0, 0.0, 1.0)
        assert row.wrong_of_ordered is None
        assert row.wrong_of_accepted is None
    assert isinstance(DRAWN[0], Group)
