"""Rows that would make a wrong rating in silence are refused, or counted apart."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.errors import InvalidRequestError
from app.files.writing import replace_file
from app.ratings.notes import notes_of
from app.ratings.results import Board, RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import board_of

FEW = RatingSettings(rounds=100, min_battles=1)


def row(**fields: Any) -> dict[str, Any]:
    base = {"question_id": "q", "model_a": "x", "model_b": "y", "winner": "model_a", "p_bar": 0.9}
    return {**base, **fields}


def mixed(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Battles that x and y both win sometimes, and more rows."""
    pairs = [("model_a", 0.9), ("model_b", 0.1), ("model_a", 0.8), ("model_b", 0.3)]
    rows = [
        row(question_id=f"q{place}", winner=winner, p_bar=p)
        for place, (winner, p) in enumerate(pairs * 2)
    ]
    return [*rows, *more]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def board(path: Path, rows: list[dict[str, Any]]) -> Board:
    return board_of(read_battles([write(path / "rows.jsonl", rows)]), FEW)


def gap(found: Board, view: str) -> float:
    """Score of x less that of y."""
    score = {each.model: each.score or np.nan for each in found.views[view].ratings}
    return score["x"] - score["y"]


REFUSED = {
    "an unknown winner": (
        [row(winner="model a")],
        "line 1: winner is 'model a', and must be model_a, model_b, tie or abstain",
    ),
    "NaN": ([row(p_bar=float("nan"))], "line 1: p_bar is not a finite number"),
    "a p_bar above 1": ([row(p_bar=1.2)], "line 1: p_bar is not between 0 and 1"),
    "no p_bar beside a verdict": ([row(), row(p_bar=None)], "line 2: p_bar is missing"),
    "a p_bar of the other side": (
        [row(winner="model_b")],
        "line 1: winner is model_b, and p_bar prefers the other model",
    ),
    "a verdict that was not accepted": ([row(accepted=False)], "line 1: accepted is false"),
    "an accepted abstention": (
        [row(winner="abstain", accepted=True)],
        "line 1: accepted is true, but winner is `abstain`",
    ),
    "one model only": ([row(model_b="x")], "line 1: model_a and model_b are the same model"),
    "an id twice with other content": (
        [row(id=1), row(id=2), row(id=1, p_bar=0.8)],
        "line 3: the id occurs twice with other content",
    ),
    "a label without a probability": (
        [row(human="model_a")],
        "line 1: there is a human label without human_probability",
    ),
    "a probability above 1": (
        [row(), row(human="model_a", human_probability=10)],
        "line 2: human_probability is not above 0 and at most 1",
    ),
    "an unknown label": (
        [row(human="good", human_probability=0.5)],
        "line 1: human is 'good', and must be model_a, model_b or tie",
    ),
    "two judges": (
        [row(judge="one"), row(judge="two")],
        "the rows are of 2 judges, 'one' and 'two', and a board is of one",
    ),
    "two versions of a set": (
        [row(signature=f"scope-judge 0.4; judge x; calibration s, version {n}") for n in (1, 2)],
        "Some have calibration s, version 1, others have calibration s, version 2",
    ),
    "errors only": ([row(winner=None, p_bar=None, error="prompt_too_long")], "every battle failed"),
    "several such rows": (
        [row(winner="?"), row(winner="?"), row(winner="?")],
        "(and 2 more such rows)",
    ),
}


def test_rows_of_several_releases_are_of_one_judge(tmp_path: Path) -> None:
    signatures = "scope-judge 0.4; judge x", "scope-judge 0.5; judge x"
    rows = [row(question_id=text, signature=text) for text in signatures]
    assert read_battles([write(tmp_path / "rows.jsonl", rows)]).judged.sum() == 2


@pytest.mark.parametrize("case", REFUSED)
def test_a_row_that_cannot_be_believed_is_refused(case: str, tmp_path: Path) -> None:
    rows, message = REFUSED[case]
    with pytest.raises(InvalidRequestError) as caught:
        read_battles([write(tmp_path / "rows.jsonl", rows)])
    assert message in caught.value.detail


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 and then nothing", "rows looks like Parquet but cannot be read"),
        (b'{"model_a": "x"}\nnot JSON\n', "line 2: this is not JSON"),
        (b'{"foo": 1}\n', "line 1: model_a is missing"),
        (b"[]", "is an empty array"),
        (b"model_a,model_b\n", "there is no row"),
    ],
)
def test_a_file_without_battles_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=message):
        read_battles([path])


def test_a_tie_is_half_a_win_for_each(tmp_path: Path) -> None:
    found = board(tmp_path, mixed(*(row(winner="tie", p_bar=0.5) for _ in range(8))))
    accepted = found.views["accepted"]
    assert found.accepted == accepted.battles == 16
    assert accepted.ratings[0].score == pytest.approx(1000)


def test_an_abstention_counts_as_the_view_says(tmp_path: Path) -> None:
    found = board(
        tmp_path, mixed(*(row(winner="abstain", p_bar=0.6, reason="uncertain") for _ in range(8)))
    )
    assert {name: view.battles for name, view in found.views.items()} == {
        "accepted": 8,
        "soft": 16,
        "abstain_as_tie": 16,
    }
    # x has half of the points if an abstention is a tie, and (8 * 0.525 + 8 * 0.6) / 16 by p_bar.
    tie, soft = (gap(found, name) for name in ("abstain_as_tie", "soft"))
    assert tie == pytest.approx(0.0, abs=1e-6)
    assert soft == pytest.approx(400 * np.log10(0.5625 / 0.4375))
    assert found.pairs[0].coverage == 0.5


def test_an_error_counts_in_no_view(tmp_path: Path) -> None:
    failed = row(winner=None, p_bar=None, error="engine_unavailable", model_a="z")
    nothing = {"error": "invalid_comparison", "error_detail": "there is no model_a"}
    found = board(tmp_path, mixed(failed, nothing, row(model_b="x", error="same model")))
    assert (found.battles, found.judged, found.errors) == (11, 8, 3)
    assert all(view.battles == 8 for view in found.views.values())
    assert any("3 battles have no judgment" in note for note in found.notes)


def test_models_that_never_met_the_most_have_no_rating(tmp_path: Path) -> None:
    apart = [{**each, "model_a": "u", "model_b": "v"} for each in mixed()]
    alone = board(tmp_path, mixed(row(model_b="z"), row(model_b="z", winner="model_b", p_bar=0.1)))
    joined = board(
        tmp_path, [*apart, *mixed(row(model_b="z"), row(model_b="z", winner="model_b", p_bar=0.1))]
    )
    rated = {each.model: each.score for each in joined.views["soft"].ratings}
    assert (rated.pop("u"), rated.pop("v")) == (None, None)
    assert rated == pytest.approx({e.model: e.score for e in alone.views["soft"].ratings})
    assert any("u, v: no battle in the view `soft` links them" in note for note in joined.notes)


def test_a_given_probability_stands_for_the_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", mixed(row(human="model_a")))
    battles = read_battles([path], human_probability=0.25)
    assert np.unique(battles.human_probability).tolist() == [0.25]


def test_groups_are_the_units_of_the_bootstrap_where_there_are_any(tmp_path: Path) -> None:
    rows = [{**each, "group": "g1" if i < 3 else None} for i, each in enumerate(mixed())]
    battles = read_battles([write(tmp_path / "rows.jsonl", rows)])
    assert battles.units == 6
    assert len(set(battles.unit[:3].tolist())) == 1


def test_every_format_gives_the_same_battles(tmp_path: Path) -> None:
    rows = [
        {
            **each,
            "id": place,
            "alpha": 0.1,
            "accepted": True,
            "signature": "one, line; of text",
            "human": "tie" if place == 2 else None,
            "human_probability": 0.5,
        }
        for place, each in enumerate(mixed())
    ]
    wanted = read_battles([write(tmp_path / "rows.jsonl", rows)])
    for name in ("a.parquet", "a.csv", "a.tsv", "a.json", "a.jsonl.gz"):
        path = tmp_path / name
        replace_file(path, rows)
        found = read_battles([path])
        for field, value in vars(wanted).items():
            np.testing.assert_equal(getattr(found, field), value, err_msg=f"{name} {field}")


def test_people_alone_make_a_board_and_unlabeled_rows_do_not_count(tmp_path: Path) -> None:
    sides = ["model_a"] * 40 + ["model_b"] * 20 + [None] * 5
    rows = [
        {"question_id": f"q{place}", "model_a": "x", "model_b": "y", "human": side}
        for place, side in enumerate(sides)
    ]
    found = board_of(read_battles([write(tmp_path / "rows.jsonl", rows)]), RatingSettings())
    assert (found.judge, found.main, list(found.views)) == ("people", "people", ["people"])
    assert (found.battles, found.judged, found.errors) == (60, 60, 0)
    # 40 of 60 points: 400 log10(40 / 20) points apart.
    assert gap(found, "people") == pytest.approx(120.4, abs=0.5)
    notes = notes_of(found, RatingSettings())
    assert notes == ("People decided all battles, and no judge was asked.",)


def test_a_winner_of_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="name the judge in a column `judge`, or call"):
        board(tmp_path, [row(p_bar=None), row(winner="tie", p_bar=None)])
