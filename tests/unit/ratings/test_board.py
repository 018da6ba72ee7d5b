from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from app.core.errors import InvalidRequestError
from app.ratings.leaderboard import results_of
from app.ratings.notes import similar_names
from app.ratings.results import Board, Rating, RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import Arena, board_of, simulated, write

FEW = RatingSettings(rounds=200)


def rated(
    arena: Arena, folder: Path, settings: RatingSettings = FEW, *, labelled: float = 0.1
) -> Board:
    path = write(folder / "rows.jsonl", arena.rows(labelled=labelled))
    return board_of(read_battles([path]), settings)


def by_model(board: Board, view: str) -> dict[str, Rating]:
    return {rating.model: rating for rating in board.views[view].ratings}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Board:
    return rated(simulated(battles=1500), tmp_path_factory.mktemp("small"))


def test_without_labels_there_is_no_debiased_view_and_no_promise(tmp_path: Path) -> None:
    board = rated(simulated(battles=300), tmp_path, labelled=0.0)
    assert tuple(board.views) == ("accepted", "soft", "abstain_as_tie")
    assert board.main == "soft"
    assert board.agreement is None
    assert board.notes[0].startswith("Ratings come without a guarantee.")


def test_the_mean_of_the_scores_is_the_center(small: Board) -> None:
    for view in small.views.values():
        shares = [rating.center_share or 0.0 for rating in view.ratings]
        scores = [rating.score or 0.0 for rating in view.ratings]
        assert sum(shares) == pytest.approx(1.0)
        assert np.dot(shares, scores) == pytest.approx(1000.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_board_of_one_group_is_the_exact_fit(seed: int, tmp_path: Path) -> None:
    """An independent fit: the likelihood of each row as it is in the file, maximised by BFGS."""
    rows = simulated(battles=400, models=5, seed=seed).rows(labelled=0.5, seed=seed)
    views = board_of(read_battles([write(tmp_path / "rows.jsonl", rows)]), FEW).views
    names = sorted({row["model_a"] for row in rows})
    sides = [[names.index(row[side]) for row in rows] for side in ("model_a", "model_b")]
    won = {"model_a": 1.0, "model_b": 0.0, "abstain": 0.5, None: np.nan}
    outcomes = {
        "soft": [row["p_bar"] for row in rows],
        "abstain_as_tie": [won[row["winner"]] for row in rows],
        "people": [won[row["human"]] for row in rows],
    }
    for name, outcome in outcomes.items():
        y = np.array(outcome)
        counts = ~np.isnan(y)

        def loss(theta: np.ndarray, y: np.ndarray = y, counts: np.ndarray = counts) -> float:
            gap = (theta[sides[0]] - theta[sides[1]])[counts]
            said = y[counts] * np.log1p(np.exp(-gap)) + (1 - y[counts]) * np.log1p(np.exp(gap))
            return float(said.sum())

        fit = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-7}).x
        view = {rating.model: rating for rating in views[name].ratings}
        scores = np.array([view[model].score for model in names])
        expected = 400.0 / np.log(10.0) * (fit - fit.mean())
        np.testing.assert_allclose(scores - scores.mean(), expected, atol=0.01)
        assert {rating.unbounded for rating in view.values()} == {None}


def test_the_model_that_lost_its_only_battle_is_the_one_without_a_bound(tmp_path: Path) -> None:
    arena = simulated(battles=600)
    rows = arena.rows()
    lost = {"id": "new", "model_a": "rookie", "winner": "model_b", "p_bar": 0.1}
    path = write(tmp_path / "rows.jsonl", [*rows, rows[0] | lost | {"accepted": True}])
    # One battle is enough here, so nobody is provisional.
    board = board_of(read_battles([path]), replace(FEW, min_battles=1))
    found = {model: each.unbounded for model, each in by_model(board, "accepted").items()}
    assert found == dict.fromkeys(arena_models()) | {"rookie": "below"}


def arena_models() -> list[str]:
    return [f"model-{number:02d}" for number in range(6)]


def test_questions_asked_twice_do_not_narrow_the_intervals(tmp_path: Path) -> None:
    """Ten copies of each question: rows would be 3.2 times too sure, questions are not."""
    arena = simulated(battles=600)
    once = arena.rows()
    path = write(tmp_path / "ten.jsonl", [{**row, "id": None} for row in once for _ in range(10)])
    ten = board_of(read_battles([path]), FEW)
    one = board_of(read_battles([write(tmp_path / "one.jsonl", once)]), FEW)
    widths = [
        np.mean([(each.high or 0) - (each.low or 0) for each in board.views["soft"].ratings])
        for board in (one, ten)
    ]
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


def test_few_battles_of_one_question_have_no_narrow_interval(tmp_path: Path) -> None:
    """Drawn together, they hardly vary in the bootstrap; as single ones they do."""
    row = {**simulated(battles=1).rows()[0], "question_id": "one", "accepted": True}
    winners = [("model_a", 0.9)] * 5 + [("model_b", 0.1)] * 3
    rows = [{**row, "id": i, "winner": w, "p_bar": p} for i, (w, p) in enumerate(winners)]
    board = board_of(read_battles([write(tmp_path / "rows.jsonl", rows)]), FEW)
    for each in board.views["accepted"].ratings:
        assert each.provisional
        # The model of eight battles implies 63 points to one standard deviation, the rounds 21.
        assert (each.high or 0) - (each.low or 0) > 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a results.json"),
        ("[]", "is not a results.json"),
        ('{"format": 9}', "the format 9"),
    ],
)
def test_a_file_that_is_no_results_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        results_of(text, "results.json")


def test_labels_that_contradict_alpha_are_the_first_note(tmp_path: Path) -> None:
    rows = simulated(battles=600, coverage=0.9).rows(labelled=0.5)
    found = {}
    for alpha in (0.2, 0.01):
        path = write(tmp_path / "rows.jsonl", [{**row, "alpha": alpha} for row in rows])
        board = board_of(read_battles([path]), FEW)
        assert board.agreement is not None
        found[alpha] = board.notes[0]
        contradicts = (board.agreement.error_low or 0.0) > alpha
        assert contradicts == found[alpha].startswith("The labels contradict alpha")
    assert found[0.2] != found[0.01]


def test_an_interval_that_would_rest_on_the_prior_has_no_end(tmp_path: Path) -> None:
    board = rated(simulated(battles=2000, models=12, seed=1), tmp_path, labelled=0.02)
    people = board.views["people"]
    assert people.unsolved is not None
    assert people.unsolved > 0.5
    sides = {each.unbounded for each in people.ratings}
    assert {"above", "below"} <= sides
    for each in people.ratings:
        assert (each.high is None) == (each.unbounded in ("above", "both"))
        assert (each.low is None) == (each.unbounded in ("below", "both"))
        assert (each.rank is None) == (each.unbounded == "both")
    assert board.views["soft"].unsolved == 0.0


@pytest.mark.parametrize(
    ("names", "similar"),
    [
        (("atlas-72B", "altas-72b"), True),
        (("atlas", "atlas "), True),
        (("Llama 3", "llama-3"), True),
        (("gpt-4", "gpt-4o"), False),
        (("model-1", "model-2"), False),
        (("model-12", "model-21"), False),
    ],
)
def test_names_that_differ_like_typing_errors_are_similar(
    names: tuple[str, str], similar: bool
) -> None:
    assert similar_names([*names, "other"]) == ([tuple(sorted(names))] if similar else [])
