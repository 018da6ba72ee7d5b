"""Scores from a file of judged pairs: by hand, and the files that are refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequestError
from app.evaluation.curve.labeled_scores import LabeledScores, labeled_scores_of
from app.evaluation.judgments.jsonl import read_judgments


def write(folder: Path, rows: list[Any]) -> Path:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read_labeled_scores(file: Path) -> LabeledScores:
    return labeled_scores_of(read_judgments([file]), str(file))


def of(folder: Path, rows: list[Any]) -> LabeledScores:
    return read_labeled_scores(write(folder, rows))


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


def test_a_file_without_a_usable_line_is_refused(tmp_path: Path) -> None:
    unusable: list[list[Any]] = [[pair(None, None)], [pair(1, 1, "tie")], [{"label": "A"}]]
    for rows in unusable:
        with pytest.raises(InvalidRequestError, match="no labeled pair"):
            of(tmp_path, rows)
