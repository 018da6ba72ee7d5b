"""The rows, the figure and the command of `scope-judge curve`."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.preference import LN2
from app.evaluation.curve.figure import write_curve_figure
from app.evaluation.curve.labeled_scores import LabeledScores
from app.evaluation.curve.rows import assessment_of

runner = CliRunner()


def scores(n: int = 400, seed: int = 5) -> LabeledScores:
    """A judge that is wrong more often when it is less confident."""
    rng = np.random.default_rng(seed)
    uncertainty = rng.random(n) * LN2
    return LabeledScores(uncertainty=uncertainty, error=rng.random(n) < 0.3 * uncertainty)


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
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


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


@pytest.mark.parametrize(
    "data",
    [
        scores(),
        LabeledScores(uncertainty=np.full(50, LN2), error=np.ones(50, dtype=bool)),
    ],
)
def test_the_figure_is_drawn_even_where_nothing_is_feasible(
    data: LabeledScores, tmp_path: Path
) -> None:
    file = tmp_path / "a.svg"
    write_curve_figure(data, assessment_of(data, (0.07, 0.4), delta=0.1), file)
    assert file.read_bytes().startswith(b"<?xml")


def test_the_command_prints_the_table_to_stdout_and_left_out_lines_to_stderr(file: Path) -> None:
    result = runner.invoke(app, ["curve", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("n = 300, accuracy 0.")
    assert "\x1b" not in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[1] for row in rows if row[:1] == ["marginal"]] == [
        "0.05",
        "0.1",
        "0.15",
        "0.2",
        "0.25",
    ]
    assert sum(row[:3] == ["pac,", "delta", "0.1"] for row in rows) == 5
    assert "302 rows: 300 usable, 1 tie, 1 unusable" in result.stderr
    assert f"unusable, 1: no p_rev ({file}, line 302)" in result.stderr


def test_the_command_takes_alphas_delta_and_a_plot(file: Path, tmp_path: Path) -> None:
    plot = tmp_path / "curve.png"
    options = ["--alpha", "0.3", "--alpha", "0.03", "--delta", "0.2"]
    result = runner.invoke(app, ["curve", str(file), *options, "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[1] for row in rows if row[:1] == ["marginal"]] == ["0.3", "0.03"]
    assert [row[3] for row in rows if row[:3] == ["pac,", "delta", "0.2"]] == ["0.3", "0.03"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--alpha", "0"], "--alpha must be between 0 and 1"),
        (["--alpha", "0.1", "--alpha", "nan"], "--alpha must be between 0 and 1"),
        (["--delta", "1"], "--delta must be between 0 and 1"),
        (["--plot", "x.pdf"], "--plot x.pdf: the name must end in .png or .svg"),
        (["--plot", "/absent/x.png"], "/absent/x.png cannot be written"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(
    file: Path, options: list[str], words: str
) -> None:
    result = runner.invoke(app, ["curve", str(file), *options])
    assert result.exit_code == 1, result.output
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_only_the_plot_needs_matplotlib(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "app.evaluation.curve.figure")
    assert runner.invoke(app, ["curve", str(file)]).exit_code == 0
    result = runner.invoke(app, ["curve", str(file), "--plot", "x.png"])
    assert result.exit_code == 1
    assert "pip install scope-judge[evaluation]" in result.stderr
