"""Judges are compared on the pairs that all of them judged."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.errors import InvalidRequestError
from app.evaluation.comparison import compare
from app.evaluation.protocol import Design
from app.evaluation.report.tables import comparison_table

DESIGN = Design(splits=20, ablation_splits=1, alphas=(0.1, 0.2))
N = 300


def folder_of(root: Path, judge: str, *, accuracy: float, ids: range, label: str = "A") -> Path:
    """A folder of a judge that is right with a probability, and surer where it is right."""
    rng = np.random.default_rng(len(judge))
    folder = root / re.sub(r"\W", "_", judge)
    folder.mkdir()
    lines = []
    for i in ids:
        right = rng.random() < accuracy
        gap = float(abs(rng.normal(3.0 if right else 0.5, 0.5))) * (1 if right else -1)
        line = {"dataset": "mine", "id": str(i), "label": label, "judge": judge}
        lines.append(json.dumps({**line, "gap_fwd": gap, "gap_rev": gap}))
    (folder / "judgments.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [
        folder_of(tmp_path, "strong", accuracy=0.9, ids=range(N)),
        folder_of(tmp_path, "weak | <b>", accuracy=0.6, ids=range(50, N + 50)),
    ]


def test_judges_are_compared_on_their_common_pairs(folders: list[Path]) -> None:
    (dataset,) = compare(folders, DESIGN, at_most=2000)
    assert (dataset.name, dataset.n) == ("mine", N - 50)
    strong, weak = dataset.judges
    assert strong.quality.accuracy == pytest.approx(0.9, abs=0.06)
    assert weak.quality.accuracy == pytest.approx(0.6, abs=0.09)
    assert [(row.selector, row.alpha) for row in strong.rows] == [
        ("scope", 0.1),
        ("scope", 0.2),
        ("pac", 0.1),
        ("pac", 0.2),
    ]


def test_the_table_has_a_row_for_each_judge_and_escapes_its_name(folders: list[Path]) -> None:
    table = comparison_table(compare(folders, DESIGN, at_most=2000), alpha=0.1)
    strong, weak = table.rows
    assert strong[:3] == ("mine", "strong", N - 50)
    # The stronger judge is accepted more often.
    assert strong[-4] > weak[-4]  # type: ignore[operator]
    assert "weak \\| &lt;b>" in table.markdown()
    assert "mine,weak | <b>,250," in table.csv()


def test_the_command_writes_the_table_and_asks_no_judge(
    folders: list[Path], tmp_path: Path
) -> None:
    arguments = ["--compare", str(folders[0]), "--compare", str(folders[1]), "--splits", "5"]
    out = tmp_path / "compared"
    result = CliRunner().invoke(
        app, ["evaluate", *arguments, "--out", str(out)], env={"COLUMNS": "300"}
    )
    assert result.exit_code == 0, result.output
    assert "weak | <b>" in result.output
    assert {file.name for file in out.iterdir()} == {"comparison.md", "comparison.csv"}
    refused = CliRunner().invoke(app, ["evaluate", "mine.jsonl", *arguments])
    assert refused.exit_code != 0


def test_what_cannot_be_compared_is_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="at least two"):
        compare(folders[:1], DESIGN, at_most=2000)
    with pytest.raises(InvalidRequestError, match="of the same judge"):
        compare([folders[0], folders[0]], DESIGN, at_most=2000)
    apart = folder_of(tmp_path, "apart", accuracy=0.9, ids=range(1000, 1010))
    with pytest.raises(InvalidRequestError, match="in common"):
        compare([folders[0], apart], DESIGN, at_most=2000)
    other = folder_of(tmp_path, "other", accuracy=0.9, ids=range(N), label="B")
    with pytest.raises(InvalidRequestError, match="different labels"):
        compare([folders[0], other], DESIGN, at_most=2000)
