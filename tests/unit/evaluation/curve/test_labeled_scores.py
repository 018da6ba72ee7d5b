"""Scores from a file of judged pairs: by hand, and the files that are refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.errors import InvalidRequestError
from app.core.preference import LN2
from app.core.temperature import fitted_temperature
from app.evaluation.curve.labeled_scores import LabeledScores, labeled_scores_of
from app.evaluation.judgments.jsonl import read_judgments
from app.files.checking import RowPlace
from tests.judgment_files import SYNTHETIC, each_file, file_of


def write(folder: Path, rows: list[Any]) -> Path:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read_labeled_scores(file: Path) -> LabeledScores:
    return labeled_scores_of(read_judgments([file]), str(file))


def of(folder: Path, rows: list[Any]) -> LabeledScores:
    return read_labeled_scores(write(folder, rows))


def place(folder: Path, line: int) -> str:
    return f"{folder / 'pairs.jsonl'}, line {line}"


def pair(p_fwd: float | None, p_rev: float | None, label: str | None = "A") -> dict[str, Any]:
    return {"p_fwd": p_fwd, "p_rev": p_rev, "label": label}


def entropy(p: float) -> float:
    return -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_probabilities_by_hand(tmp_path: Path) -> None:
    # p_bar 0.8 for A, 0.25 for B, 0.8 with label B.
    scores = of(tmp_path, [pair(0.9, 0.7), pair(0.5, 0.0, "B"), pair(0.9, 0.7, "B")])
    assert scores.uncertainty == pytest.approx([entropy(0.8), entropy(0.25), entropy(0.8)])
    assert scores.error.tolist() == [False, False, True]
    assert (scores.n, scores.report.rows, scores.report.usable) == (3, 3, 3)
    assert scores.accuracy == pytest.approx(2 / 3)
    # The wrong pair ties with one right pair (a half) and is more confident than the other (0).
    assert scores.auroc == 0.25


def test_no_preference_is_an_error_at_ln_2_and_a_certain_vote_has_no_uncertainty(
    tmp_path: Path,
) -> None:
    scores = of(tmp_path, [pair(1, 0), pair(0.3, 0.7, "B"), pair(0.5, 0.5)])
    assert scores.uncertainty.tolist() == [LN2] * 3
    assert scores.error.all()
    scores = of(tmp_path, [pair(1, 1), pair(0, 0, "B"), pair(0, 0)])
    assert scores.uncertainty.tolist() == [0.0] * 3
    assert scores.error.tolist() == [False, False, True]


def test_a_reward_gap_at_its_temperature_is_the_logit_gap_of_both_orders(tmp_path: Path) -> None:
    rows = [
        {"score_a": 3.5, "score_b": 1.5, "label": "A"},
        {"score_a": 1.5, "score_b": 3.5, "label": "A"},
        {"score_a": -7, "score_b": -7, "label": "B"},
        {"score_a": 60, "score_b": 0, "label": "A"},
    ]
    scores = of(tmp_path, rows)
    gaps = np.array([2.0, -2.0, 0.0, 60.0])
    temperature = fitted_temperature(gaps, np.array([True, True, False, True]))
    expected = [entropy(1 / (1 + math.exp(-gap / temperature))) for gap in gaps]
    assert scores.uncertainty == pytest.approx(expected)
    assert scores.uncertainty[2] == LN2
    assert scores.error.tolist() == [False, True, True, False]


def test_rewards_far_apart_keep_distinct_scores(tmp_path: Path) -> None:
    rows = [{"score_a": 1000.0 * i, "score_b": 0, "label": "A"} for i in range(1, 21)]
    assert len(set(of(tmp_path, rows).uncertainty.tolist())) == 20


def test_equal_vote_shares_have_equal_scores_in_spite_of_rounding(tmp_path: Path) -> None:
    # Each mean is 0.4 or 0.6; in floating point 0.1 + 0.7 is not 0.2 + 0.6, and swaps differ.
    votes = [(0.1, 0.7), (0.7, 0.1), (0.2, 0.6), (0.4, 0.4), (0.9, 0.3), (0.6, 0.6), (0.8, 0.4)]
    assert 0.1 + 0.7 != 0.2 + 0.6
    scores = of(tmp_path, [pair(*vote) for vote in votes])
    assert len(set(scores.uncertainty.tolist())) == 1
    # Three sevenths and four sevenths are no preference, in spite of rounding.
    assert of(tmp_path, [pair(3 / 7, 4 / 7), pair(0.333333333333, 0.666666666667)]).error.all()


def test_tiny_probabilities_keep_distinct_scores(tmp_path: Path) -> None:
    scores = of(tmp_path, [pair(1e-30, 1e-30, "B"), pair(2e-30, 2e-30, "B"), pair(0, 0, "B")])
    assert scores.uncertainty[1] > scores.uncertainty[0] > scores.uncertainty[2] == 0.0


def test_ties_and_incomplete_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        pair(0.9, 0.9),
        pair(0.9, None),
        pair(0.9, 0.9, "tie"),
        pair(None, None),
        {"p_fwd": 0.9, "p_rev": 0.9},
        pair(0.2, 0.2, "B"),
        pair(None, 0.4, "tie"),
    ]
    scores = of(tmp_path, rows)
    assert (scores.n, scores.report.ties, scores.report.unlabelled) == (2, 2, 1)
    assert list(scores.report.unusable) == [
        RowPlace(place=place(tmp_path, 2), detail="no p_rev"),
        RowPlace(place=place(tmp_path, 4), detail="no p_fwd and p_rev"),
    ]
    rows = [{"score_a": 1, "score_b": 0, "label": "A"}, {"score_a": None, "label": "B"}]
    assert list(of(tmp_path, rows).report.unusable) == [
        RowPlace(place=place(tmp_path, 2), detail="no score_a and score_b")
    ]


def test_a_file_without_a_usable_line_is_refused(tmp_path: Path) -> None:
    unusable: list[list[Any]] = [[pair(None, None)], [pair(1, 1, "tie")], [{"label": "A"}]]
    for rows in unusable:
        with pytest.raises(InvalidRequestError, match="no labeled pair"):
            of(tmp_path, rows)


# n, and the number of levels of the signal, from the README of ../shared/data.
REAL_FILES = {
    "llmbar_case__GPT-4_prompt-ensemble": (734, 12),
    "llmbar_processed_human__GPT-4": (466, 5),
    "vicuna80_prd__jury5": (685, 11),
    "vicuna80_prd__gpt4": (685, 3),
    "rewardbench2__rm_URM-LLaMa-3.1-8B": (1763, None),
}


# Rows of LLMBar that repeat the texts of an earlier row, in either order, with the same label.
REPEATED = {"llmbar_case__GPT-4_prompt-ensemble": 2, "llmbar_processed_human__GPT-4": 5}


def n_and_levels(name: str) -> tuple[int, int | None]:
    if name in REAL_FILES:
        return REAL_FILES[name]
    # With k votes in each order, p_bar is j / 2k. A pair and its mirror image have the same level,
    # and every level occurs in the file.
    shape = SYNTHETIC[name]
    return shape.n, shape.votes + 1 if shape.votes else None


@each_file
def test_files_of_judgments_are_read_completely(name: str) -> None:
    n, levels = n_and_levels(name)
    scores = read_labeled_scores(file_of(name))
    repeated = REPEATED.get(name, 0)
    assert (scores.n, scores.report.rows) == (n - repeated, n)
    assert len(scores.report.repeated) == repeated
    if levels is not None:
        assert len(np.unique(scores.uncertainty)) == levels
