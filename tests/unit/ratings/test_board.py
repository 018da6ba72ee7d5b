import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from app.core.errors import InvalidRequestError
from app.ratings.board import board_of
from app.ratings.bootstrap import cells_of
from app.ratings.bradley_terry import solve
from app.ratings.codec import results_of, results_text
from app.ratings.leaderboard import results_from
from app.ratings.outcomes import games_of, views_of
from app.ratings.results import VIEWS, Board, LeaderboardResults, Rating, RatingSettings, ViewName
from app.ratings.rows import read_battles
from app.ratings.style import controlled, controlled_replicates, features_of
from tests.unit.ratings.arena import Arena, simulated, write

FEW = RatingSettings(rounds=200)


def rated(
    arena: Arena, folder: Path, settings: RatingSettings = FEW, *, labelled: float = 0.1
) -> Board:
    path = write(folder / "rows.jsonl", arena.rows(labelled=labelled))
    return board_of(read_battles([path])[0], settings)


def by_model(board: Board, view: str) -> dict[str, Rating]:
    return {rating.model: rating for rating in board.views[view].ratings}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Board:
    return rated(simulated(battles=1500), tmp_path_factory.mktemp("small"))


def test_every_view_is_there_in_order(small: Board) -> None:
    assert tuple(small.views) == VIEWS
    assert small.main == "debiased"


def test_without_labels_there_is_no_debiased_view_and_no_promise(tmp_path: Path) -> None:
    board = rated(simulated(battles=300), tmp_path, labelled=0.0)
    assert tuple(board.views) == ("accepted", "soft", "abstain_as_tie", "always")
    assert board.main == "soft"
    assert board.agreement is None
    assert board.notes[0].startswith("Ratings come without a guarantee.")


def test_the_mean_of_the_scores_is_the_centre_unless_there_is_a_reference(
    small: Board, tmp_path: Path
) -> None:
    for view in small.views.values():
        shares = [rating.centre_share or 0.0 for rating in view.ratings]
        scores = [rating.score or 0.0 for rating in view.ratings]
        assert sum(shares) == pytest.approx(1.0)
        assert np.dot(shares, scores) == pytest.approx(1000.0)
    anchored = rated(simulated(battles=1500), tmp_path, replace(FEW, reference="model-02"))
    anchor = by_model(anchored, "soft")["model-02"]
    assert (anchor.score, anchor.low, anchor.high) == (1000.0, 1000.0, 1000.0)
    before, after = by_model(small, "soft"), by_model(anchored, "soft")
    gaps = {round((after[model].score or 0) - (before[model].score or 0), 6) for model in before}
    assert len(gaps) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_board_of_one_group_is_the_exact_fit(seed: int, tmp_path: Path) -> None:
    """An independent fit: the likelihood of each row as it is in the file, maximised by BFGS."""
    rows = simulated(battles=400, models=5, seed=seed).rows(labelled=0.5, seed=seed)
    views = board_of(read_battles([write(tmp_path / "rows.jsonl", rows)])[0], FEW).views
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


@pytest.mark.parametrize("reference", [None, "model-01", "rookie"])
def test_the_rookie_that_lost_its_only_battle_is_the_one_without_a_bound(
    reference: str | None, tmp_path: Path
) -> None:
    arena = simulated(battles=600)
    rows = arena.rows()
    lost = {"id": "new", "model_a": "rookie", "winner": "model_b", "p_bar": 0.1}
    path = write(tmp_path / "rows.jsonl", [*rows, rows[0] | lost | {"accepted": True}])
    board = board_of(read_battles([path])[0], replace(FEW, reference=reference))
    found = {model: each.unbounded for model, each in by_model(board, "accepted").items()}
    others = "above" if reference == "rookie" else None
    anchor = None if reference == "rookie" else "below"
    assert found == dict.fromkeys(arena_models(), others) | {"rookie": anchor}


def arena_models() -> list[str]:
    return [f"model-{number:02d}" for number in range(6)]


def test_an_unknown_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="'gpt' is not a model of these battles"):
        rated(simulated(battles=100), tmp_path, replace(FEW, reference="gpt"))


def test_a_rank_is_in_its_rank_set_and_the_score_in_its_interval(small: Board) -> None:
    for view in small.views.values():
        for rating in view.ratings:
            assert rating.rank is not None
            assert rating.rank_low is not None
            assert rating.rank_high is not None
            assert rating.rank_low <= rating.rank <= rating.rank_high
            assert rating.score is not None
            assert rating.low is not None
            assert rating.high is not None
            assert rating.low < rating.score < rating.high


def test_the_same_seed_gives_the_same_board_and_another_seed_other_intervals(
    small: Board, tmp_path: Path
) -> None:
    assert rated(simulated(battles=1500), tmp_path) == small
    other = rated(simulated(battles=1500), tmp_path, replace(FEW, seed=1))
    assert by_model(other, "soft") != by_model(small, "soft")


def test_questions_asked_twice_do_not_narrow_the_intervals(tmp_path: Path) -> None:
    """Ten copies of each question: rows would be 3.2 times too sure, questions are not."""
    arena = simulated(battles=600)
    once = arena.rows()
    path = write(tmp_path / "ten.jsonl", [{**row, "id": None} for row in once for _ in range(10)])
    ten = board_of(read_battles([path])[0], FEW)
    one = board_of(read_battles([write(tmp_path / "one.jsonl", once)])[0], FEW)
    widths = [
        np.mean([(each.high or 0) - (each.low or 0) for each in board.views["always"].ratings])
        for board in (one, ten)
    ]
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


def test_the_dropped_battles_change_the_first_place_and_one_less_does_not(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", simulated(battles=300).rows())
    (battles,) = read_battles([path])
    board = board_of(battles, FEW)
    names: tuple[ViewName, ...] = ("soft", "accepted", "always")
    for name in names:
        found = board.views[name].first_place
        assert found is not None
        assert found.dropped is not None
        assert 1 <= found.dropped <= 20

        def leader(dropped: tuple[str, ...], view: ViewName = name) -> str:
            kept = battles.where(~np.isin(battles.names, dropped))
            games = games_of(kept, views_of(kept)[view])
            theta = solve(cells_of(games).whole, prior_sd=FEW.prior_sd / FEW.points)
            return battles.models[int(np.argmax(theta))]

        assert leader(()) == leader(found.rows[:-1]) == found.model
        assert leader(found.rows) == found.challenger != found.model


def test_results_survive_their_file(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", simulated(battles=400).rows(labelled=0.2))
    results = results_from(read_battles([path]), FEW, made="2026-11-22T10:00:00+00:00")
    assert results_of(results_text(results), "results.json") == results


def test_results_of_release_0_3_0_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", simulated(battles=400).rows(labelled=0.2))
    results = results_from(read_battles([path]), FEW, made="2026-11-22T10:00:00+00:00")
    old = json.loads(results_text(results))
    assert old.pop("label_noise") == 0.0
    weights = {name: view.pop("judge_weight") for name, view in old["views"].items()}
    assert 0.0 <= weights.pop("debiased") <= 1.0
    assert set(weights.values()) == {None}
    read = results_of(json.dumps(old), "results.json")
    assert read.board.views["debiased"].judge_weight is None
    assert read.board.views["soft"] == results.board.views["soft"]


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


def test_alpha_bounds_a_win_rate_less_than_if_errors_were_spread_evenly(small: Board) -> None:
    for each in small.win_rates:
        assert 0.0 <= each.low <= each.even_low <= each.won / each.judged
        assert each.won / each.judged <= each.even_high <= each.high <= 1.0
    first = small.win_rates[0]
    accepted_errors = 0.1 * small.accepted
    assert first.low == pytest.approx(max(first.won - accepted_errors, 0.0) / first.judged)


def test_labels_that_contradict_alpha_are_the_first_note(tmp_path: Path) -> None:
    rows = simulated(battles=600, coverage=0.9).rows(labelled=0.5)
    found = {}
    for alpha in (0.2, 0.01):
        path = write(tmp_path / "rows.jsonl", [{**row, "alpha": alpha} for row in rows])
        board = board_of(read_battles([path])[0], FEW)
        assert board.agreement is not None
        found[alpha] = board.notes[0]
        contradicts = (board.agreement.error_low or 0.0) > alpha
        assert contradicts == found[alpha].startswith("The labels contradict alpha")
    assert found[0.2] != found[0.01]


def test_a_model_with_few_battles_is_below_the_table_and_leaves_the_centre_alone(
    tmp_path: Path,
) -> None:
    rows = simulated(battles=900).rows()
    new = [rows[i] | {"id": f"new-{i}", "model_a": "rookie", "p_bar": 0.99} for i in range(2)]
    new = [row | {"winner": "abstain", "accepted": False} for row in new]
    before = board_of(read_battles([write(tmp_path / "a.jsonl", rows)])[0], FEW)
    board = board_of(read_battles([write(tmp_path / "b.jsonl", [*rows, *new])])[0], FEW)
    *others, last = board.views["soft"].ratings
    assert (last.model, last.rank, last.provisional, last.centre_share) == ("rookie", None, True, 0)
    assert (last.score or 0) > (others[0].score or 0), "it stands below in spite of its score"
    assert [each.rank for each in others] == [1, 2, 3, 4, 5, 6]
    for was, each in zip(before.views["soft"].ratings, others, strict=True):
        assert each.model == was.model
        assert each.score == pytest.approx(was.score, abs=1.0)
        assert (each.high or 0) - (each.low or 0) == pytest.approx(
            (was.high or 0) - (was.low or 0), rel=0.15
        )
    assert any("rookie is provisional" in note for note in board.notes)


def test_with_a_handful_of_labels_the_table_shows_the_judge_and_says_why(tmp_path: Path) -> None:
    board = rated(simulated(battles=900, models=12), tmp_path, labelled=0.01)
    assert board.main == "soft"
    assert board.notes[0].startswith(f"{board.agreement.labelled if board.agreement else 0} labels")


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


def test_a_favoured_model_is_named(tmp_path: Path) -> None:
    board = rated(simulated(battles=3000, favour=2.0), tmp_path, labelled=0.3)
    assert board.agreement is not None
    favour = board.agreement.favours[0]
    assert favour.model == "model-02"
    assert favour.low > 0.1


def test_one_label_says_nothing_about_a_favour(tmp_path: Path) -> None:
    rows = simulated(battles=100).rows()
    rows[0] |= {"human": "model_a", "human_probability": 0.01}
    board = board_of(read_battles([write(tmp_path / "rows.jsonl", rows)])[0], FEW)
    assert board.agreement is not None
    assert board.agreement.favours == ()
    results_text(LeaderboardResults(version="0", made="now", settings=FEW, board=board))


def test_two_judges_are_compared_on_the_battles_that_both_judged(tmp_path: Path) -> None:
    fair, kin = simulated(battles=2000), simulated(battles=2000, favour=3.0)
    rows = [
        *fair.rows(judge="fair", signature="fair"),
        *kin.rows(judge="kin", signature="kin")[:1500],
    ]
    found = results_from(read_battles([write(tmp_path / "rows.jsonl", rows)]), FEW, made="now")
    assert [found.board.judge, found.other_boards[0].judge] == ["fair", "kin"]
    (pair,) = found.judges
    assert (pair.shared, pair.models) == (1500, 6)
    differ = ((fair.p_bar > 0.5) != (kin.p_bar > 0.5))[:1500]
    assert pair.disagree == pytest.approx(differ.mean())
    assert pair.rank_correlation is not None
    assert pair.rank_correlation < 0.8
    # They disagree most where the favoured model plays.
    assert all("model-02" in (each.model_a, each.model_b) for each in pair.worst[:5])


def test_changes_name_moved_models_and_another_signature(tmp_path: Path) -> None:
    fair, kin = simulated(battles=3000), simulated(battles=3000, favour=3.0)
    folder = tmp_path / "before"
    folder.mkdir()
    before = results_from(
        read_battles([write(tmp_path / "fair.jsonl", fair.rows())]), FEW, made="1"
    )
    (folder / "results.json").write_text(results_text(before))
    rows = kin.rows(signature="another")
    found = results_from(
        read_battles([write(tmp_path / "kin.jsonl", rows)]), FEW, made="2", against=folder
    )
    changes = found.changes
    assert changes is not None
    assert not changes.same_signature
    moved = {change.model: change.moved for change in changes.models}
    assert moved["model-02"]
    with pytest.raises(InvalidRequestError, match="another --control"):
        results_from(
            read_battles([tmp_path / "kin.jsonl"]),
            replace(FEW, control="length"),
            made="3",
            against=folder,
        )


def styled(arena: Arena, effect: float, folder: Path) -> Path:
    """Rows in which p_bar grows with the length, and model 0 writes long."""
    rng = np.random.default_rng(9)
    lengths = [
        np.where(side == 0, 900, 300) * np.exp(rng.normal(0, 0.4, len(side)))
        for side in (arena.first, arena.second)
    ]
    difference = (lengths[0] - lengths[1]) / (lengths[0] + lengths[1])
    logit = np.log(arena.p_bar / (1 - arena.p_bar)) + effect * difference
    longer = replace(arena, p_bar=1 / (1 + np.exp(-logit)))
    rows = longer.rows()
    counts = {f"{name}_{side}": 1 for name in ("headers", "bold", "lists") for side in "ab"}
    for row, a, b in zip(rows, *lengths, strict=True):
        row |= {"length_a": int(a), "length_b": int(b), **counts}
    return write(folder / "styled.jsonl", rows)


def test_control_takes_the_advantage_of_length_away(tmp_path: Path) -> None:
    arena = simulated(battles=4000)
    path = styled(arena, 4.0, tmp_path)
    (battles,) = read_battles([path])
    raw = board_of(battles, FEW)
    controlled_board = board_of(battles, replace(FEW, control="length"))
    plain = rated(arena, tmp_path, labelled=0.0)
    scores = [by_model(board, "soft")["model-00"].score for board in (plain, raw, controlled_board)]
    assert None not in scores
    fair, favoured, mended = (score or 0.0 for score in scores)
    assert favoured - fair > 100
    assert abs(mended - fair) < 30
    (effect,) = controlled_board.views["soft"].style
    assert effect.feature == "length"
    assert 0 < effect.low < effect.effect < effect.high
    assert raw.views["soft"].style == ()
    assert controlled_board.views["soft"].first_place is None


def test_control_keeps_debiased_ratings_of_few_labels_within_the_prior(tmp_path: Path) -> None:
    path = styled(simulated(battles=300), 4.0, tmp_path)
    (battles,) = read_battles([path])
    rng = np.random.default_rng(0)
    drawn = rng.random(battles.n) < 0.03
    human = np.where(drawn, (battles.first == 0).astype(float), np.nan)
    few = replace(battles, human=human, human_probability=np.full(battles.n, 0.03))
    board = board_of(few, replace(FEW, control="length"))
    scores = [rating.score or 0.0 for rating in board.views["debiased"].ratings]
    assert max(scores) < 3500
    assert min(scores) > -1500


def test_control_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="the rows lack length_a"):
        rated(simulated(battles=100), tmp_path, replace(FEW, control="length"))


def test_one_newton_step_spreads_like_whole_solutions(tmp_path: Path) -> None:
    """The bootstrap with `control` takes one step a round; the others solve to the end."""
    (battles,) = read_battles([styled(simulated(battles=2000), 4.0, tmp_path)])
    outcomes = views_of(battles)["always"]
    games = games_of(battles, outcomes)
    cells = cells_of(games)
    assert battles.style is not None
    features = features_of(battles.style[outcomes.counted]).values
    whole = controlled(games, cells, features, prior_sd=5.0)
    one_step = controlled_replicates(
        games, cells, features, whole, rounds=400, seed=3, prior_sd=5.0
    )
    rng = np.random.default_rng(3)
    full = []
    for _ in range(400):
        kept = rng.integers(games.units, size=games.units)
        drawn = replace(
            games,
            first=games.first[kept],
            second=games.second[kept],
            outcome=games.outcome[kept],
        )
        full.append(controlled(drawn, cells_of(drawn), features[kept], prior_sd=5.0))
    # Two bootstraps of 400 rounds differ by 5% in their standard deviations from chance alone.
    np.testing.assert_allclose(one_step.std(axis=0), np.std(full, axis=0), rtol=0.2)
    np.testing.assert_allclose(one_step.mean(axis=0), np.mean(full, axis=0), atol=0.02)
