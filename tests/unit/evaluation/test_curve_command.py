"""The rows and the command of `scope-judge curve`, from a file of judged pairs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.errors import InvalidRequestError
from app.core.preference import LN2
from app.evaluation.curve import LabeledScores, assessment_of, labeled_scores_of
from app.evaluation.judgments.jsonl import read_judgments

runner = CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(6)
    p = rng.integers(0, 11, size=(300, 2)) / 10
    label_a = rng.random(300) < p.mean(axis=1)
    rows = [
        {"p_fwd": fwd, "p_rev": rev, "label": "A" if a else "B"}
        for (fwd, rev), a in zip(p.tolist(), label_a.tolist(), strict=True)
    ]
    rows += [{"p_fwd": 1, "p_rev": 1, "label": "tie"}, {"p_fwd": 1, "label": "A"}]
    return written(tmp_path, rows)


def written(folder: Path, rows: list[Any]) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scores_of(folder: Path, rows: list[Any]) -> LabeledScores:
    path = written(folder, rows)
    return labeled_scores_of(read_judgments([path]), str(path))


def pair(p_fwd: float | None, p_rev: float | None, label: str | None = "A") -> dict[str, Any]:
    return {"p_fwd": p_fwd, "p_rev": p_rev, "label": label}


def test_probabilities_by_hand(tmp_path: Path) -> None:
    # p_bar 0.8 for A, 0.25 for B, 0.8 with label B.
    scores = scores_of(tmp_path, [pair(0.9, 0.7), pair(0.5, 0.0, "B"), pair(0.9, 0.7, "B")])
    expected = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.8, 0.25, 0.8)]
    assert scores.uncertainty == pytest.approx(expected)
    assert scores.error.tolist() == [False, False, True]
    assert (scores.report.rows, scores.report.usable) == (3, 3)
    found = assessment_of(scores, (0.1,), delta=0.1)
    # The wrong pair ties with one right pair (a half) and is more confident than the other (0).
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.auroc == 0.25


@pytest.mark.parametrize("row", [pair(None, None), pair(1, 1, "tie"), {"label": "A"}])
def test_a_file_without_a_usable_line_is_refused(row: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no labeled pair"):
        scores_of(tmp_path, [row])


def test_rows_by_hand() -> None:
    # 20 points, the last two wrong. (e + 1) / k is 1/18 at 18, then 2/19 and 3/20. So alpha = 0.06
    # accepts 18 of 20 without an error, 0.15 accepts all, and 0.05 accepts none; 1/18 is the
    # smallest feasible alpha. At 0.05, 20 points without an error would do: none is missing.
    data = LabeledScores(uncertainty=np.arange(20) / 40, error=np.arange(20) >= 18)
    found = assessment_of(data, (0.05, 0.06, 0.15), delta=0.1)
    infeasible, some, every = found.rows[:3]
    assert [row.guarantee for row in found.rows] == ["marginal"] * 3 + ["pac"] * 3
    assert [row.delta for row in found.rows] == [None] * 3 + [0.1] * 3
    assert (infeasible.threshold, infeasible.coverage) == (None, 0.0)
    assert infeasible.empirical_risk is found.more_examples(infeasible) is None
    assert (some.threshold, some.coverage, some.empirical_risk) == (17 / 40, 0.9, 0.0)
    assert (every.threshold, every.coverage, every.empirical_risk) == (LN2, 1.0, 0.1)
    assert found.feasible["marginal"] == ((0.056, 0.999),)
    # 20 points are far below the start rank of pac at these alphas.
    assert not any(row.threshold for row in found.rows[3:])
    assert all(map(found.more_examples, found.rows[3:]))


def test_the_command_prints_the_table_to_stdout_and_left_out_lines_to_stderr(file: Path) -> None:
    options = ["--alpha", "0.3", "--alpha", "0.03", "--delta", "0.2"]
    result = runner.invoke(app, ["curve", str(file), *options])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("300 labels without ties, accuracy 0.")
    assert "\x1b" not in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[1] for row in rows if row[:1] == ["marginal"]] == ["0.3", "0.03"]
    assert [row[3] for row in rows if row[:3] == ["pac,", "delta", "0.2"]] == ["0.3", "0.03"]
    assert "302 rows: 300 usable, 1 tie, 1 unusable" in result.stderr
    assert f"unusable, 1: no p_rev ({file}, line 302)" in result.stderr
