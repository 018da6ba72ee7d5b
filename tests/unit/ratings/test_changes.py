"""Changes since earlier results: paired by question, on a common zero, or explained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from app.core.errors import InvalidRequestError
from app.ratings.board import Leaderboard
from app.ratings.leaderboard import (
    leaderboard_from,
    read_leaderboard,
    write_leaderboard,
)
from app.ratings.results import Changes, RatingChange, RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import simulated, write

SETTINGS = RatingSettings(rounds=200)
ARENA = simulated(battles=1500)


def found(
    rows: list[dict[str, Any]], folder: Path, settings: RatingSettings = SETTINGS, **more: Any
) -> Leaderboard:
    battles = read_battles([write(folder / "rows.jsonl", rows)])
    return leaderboard_from(battles, settings, made="2026-11-23", **more)


def kept(leaderboard: Leaderboard, folder: Path) -> Path:
    """The folder with the files of a leaderboard that the next one reads."""
    folder.mkdir(exist_ok=True)
    write_leaderboard(leaderboard, folder)
    return folder


def changes(
    before: list[dict[str, Any]], now: list[dict[str, Any]], tmp_path: Path, **more: Any
) -> Changes:
    earlier = kept(found(before, tmp_path), tmp_path / "earlier", **more)
    result = found(now, tmp_path, against=earlier).results.changes
    assert result is not None
    return result


def widths(result: Changes) -> dict[str, float]:
    return {
        each.model: each.high - each.low
        for each in result.models
        if each.low is not None and each.high is not None
    }


def by_model(result: Changes) -> dict[str, RatingChange]:
    return {each.model: each for each in result.models}


def test_the_same_battles_do_not_change(tmp_path: Path) -> None:
    result = changes(ARENA.rows(), ARENA.rows(), tmp_path)
    assert result.common_questions == 1500
    assert "1,500 questions are in both boards" in result.note
    for each in result.models:
        assert (each.change, each.moved) == (0.0, False)
    assert max(widths(result).values()) < 0.01


def test_common_questions_narrow_the_interval(tmp_path: Path) -> None:
    other = [{**row, "question_id": f"new {row['id']}"} for row in ARENA.rows()]
    half = [*ARENA.rows()[:750], *other[750:]]
    shared, some, none = (
        changes(ARENA.rows(), rows, tmp_path) for rows in (ARENA.rows(), half, other)
    )
    assert [each.common_questions for each in (shared, some, none)] == [1500, 750, 0]
    assert none.note == "The boards share no question, so they count as independent."
    for model, width in widths(some).items():
        assert widths(shared)[model] < 0.9 * width < 0.9 * 0.9 * widths(none)[model]


def test_a_strong_newcomer_moves_no_other_model(tmp_path: Path) -> None:
    """Its rating moves the mean of all models, which is not their change."""
    some = ARENA.rows()[0]
    new = [
        {
            **some,
            "id": f"new-{place}",
            "question_id": f"new-{place}",
            "model_a": "newcomer",
            "model_b": f"model-{place % 6:02d}",
            "p_bar": float(expit(2.0 - ARENA.strength[place % 6])),
            "winner": "model_a",
            "reason": None,
        }
        for place in range(600)
    ]
    result = changes(ARENA.rows(), [*ARENA.rows(), *new], tmp_path)
    models = by_model(result)
    assert models["newcomer"].score_before is None
    assert models["newcomer"].change is None
    others = [each for model, each in models.items() if model != "newcomer"]
    for each in others:
        assert each.change is not None
        assert each.score_before is not None
        assert each.score is not None
        assert each.score - each.score_before == pytest.approx(each.change)
        assert not each.moved
    assert abs(np.mean([each.change or 0.0 for each in others])) < 5


def test_the_rounds_read_back_and_have_no_texts(tmp_path: Path) -> None:
    leaderboard = found(ARENA.rows(labelled=0.2), tmp_path)
    folder = kept(leaderboard, tmp_path / "earlier")
    read = read_leaderboard(folder)
    assert read.results == leaderboard.results
    np.testing.assert_array_equal(read.rounds.keys, leaderboard.rounds.keys)
    assert read.rounds.theta.keys() == leaderboard.results.board.views.keys()
    for view, theta in leaderboard.rounds.theta.items():
        np.testing.assert_allclose(read.rounds.theta[view], theta, rtol=1e-6)
    assert b"question" not in (folder / "rounds.npz").read_bytes()


@pytest.mark.parametrize("content", [b"", b"no archive", b"half", None, b"another run"])
def test_rounds_that_are_missing_damaged_or_of_another_run_are_refused(
    content: bytes | None, tmp_path: Path
) -> None:
    earlier = kept(found(ARENA.rows(), tmp_path), tmp_path / "earlier")
    path, results = earlier / "rounds.npz", earlier / "results.json"
    if content is None:
        path.unlink()
    elif content == b"another run":
        results.write_text(results.read_text().replace("2026-11-23", "2026-11-24"))
    else:
        path.write_bytes(path.read_bytes()[:500] if content == b"half" else content)
    with pytest.raises(InvalidRequestError, match=r"rounds\.npz cannot be read"):
        found(ARENA.rows(), tmp_path, against=earlier)
