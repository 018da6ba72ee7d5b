"""Each kind of question is rated by itself, and each controlled rating has its raw one."""

from pathlib import Path
from typing import Any

import pytest

from app.ratings.board import board_of
from app.ratings.codec import results_of, results_text
from app.ratings.leaderboard import results_from
from app.ratings.results import RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import simulated, write

SETTINGS = RatingSettings(rounds=100)


def in_kinds(*, labelled: float = 0.3) -> list[dict[str, Any]]:
    """Rows of which half are about "sums", a third about "odes", and a sixth about nothing."""
    kinds = ("sums", "odes", "sums", "odes", "sums", None)
    rows = simulated(battles=900, models=4).rows(labelled=labelled)
    return [{**row, "category": kinds[i % 6]} for i, row in enumerate(rows)]


@pytest.mark.parametrize("labelled", [0.0, 0.3])
def test_a_category_is_rated_as_a_board_of_its_rows(labelled: float, tmp_path: Path) -> None:
    rows = in_kinds(labelled=labelled)
    [battles] = read_battles([write(tmp_path / "rows.jsonl", rows)])
    board = board_of(battles, SETTINGS)
    assert [each.name for each in board.categories] == ["sums", "odes"]
    assert board.more_categories == 0
    for category in board.categories:
        own = [row for row in rows if row["category"] == category.name]
        [alone] = read_battles([write(tmp_path / "own.jsonl", own)])
        expected = board_of(alone, SETTINGS)
        assert category.view == expected.views[expected.main]
        assert category.battles == expected.battles == len(own)
        assert category.labelled == sum(row["human"] is not None for row in own)


def test_categories_survive_results_json(tmp_path: Path) -> None:
    battles = read_battles([write(tmp_path / "rows.jsonl", in_kinds())])
    results = results_from(battles, SETTINGS, made="2026-11-23")
    assert results_of(results_text(results), "results.json") == results
    assert len(results.board.categories) == 2


@pytest.mark.parametrize(
    ("kinds", "shown", "more"), [(0, 0, 0), (1, 0, 0), (20, 20, 0), (22, 20, 2)]
)
def test_one_category_is_none_and_the_smallest_of_many_are_left_out(
    kinds: int, shown: int, more: int, tmp_path: Path
) -> None:
    rows = simulated(battles=460, models=2).rows()
    if kinds:
        rows = [{**row, "category": i * kinds // 460} for i, row in enumerate(rows)]
    [battles] = read_battles([write(tmp_path / "rows.jsonl", rows)])
    board = board_of(battles, SETTINGS)
    assert len(board.categories) == shown
    assert board.more_categories == more


def test_a_category_without_a_judgment_is_left_out(tmp_path: Path) -> None:
    rows = in_kinds()
    for row in rows:
        if row["category"] == "odes":
            row |= {"error": "engine_failed", "winner": None, "p_bar": None}
    [battles] = read_battles([write(tmp_path / "rows.jsonl", rows)])
    assert [each.name for each in board_of(battles, SETTINGS).categories] == ["sums"]


def test_with_control_each_rating_has_the_raw_one_beside_it(tmp_path: Path) -> None:
    rows = in_kinds()
    for i, row in enumerate(rows):
        zeros = {f"{name}_{side}": 0 for name in ("headers", "bold", "lists") for side in "ab"}
        row |= {**zeros, "length_a": 100 + i % 7, "length_b": 100 + i % 5}
    [battles] = read_battles([write(tmp_path / "rows.jsonl", rows)])
    raw = board_of(battles, SETTINGS)
    controlled = board_of(battles, RatingSettings(rounds=100, control="length"))
    for name in ("soft", "accepted", "people"):
        scores = {each.model: each.score for each in raw.views[name].ratings}
        ratings = controlled.views[name].ratings
        # One is the same problem seen from another centre of the same models.
        assert {each.model: each.raw_score for each in ratings} == pytest.approx(scores, abs=5.0)
        assert all(each.raw_score is None for each in raw.views[name].ratings)
