"""A column `group` of files, from calibration to judgment, and in a set that moves."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import app
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.cli.commands import one_line, rows_of, write_rows
from tests.unit.cli.listening import listening

runner = CliRunner()


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def grouped() -> list[dict[str, Any]]:
    """Pairs of two groups and of none, with questions of their own."""
    numbers = {"math": 100, "code": 20, "": 30}
    return [
        {**row, "question": f"{group} {row['question']}", "group": group}
        for group, n in numbers.items()
        for row in examples(n)
    ]


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_column_is_the_group_of_labelled_pairs_and_of_judged_rows(tmp_path: Path) -> None:
    file = table(tmp_path / "labels.csv", grouped())
    with listening(application_of(groups="code")) as url:
        options = ("--groups", "math", "--by-group", "--url", url)
        result = runner.invoke(app, ["calibrate", str(file), *options])
        assert result.exit_code == 0, result.stderr
        said = one_line(result.stderr)
        assert "group math: 100 pairs, with separate thresholds" in said
        assert "group code: 20 pairs, 80 too few" in said
        shown = runner.invoke(app, ["sets", "show", "default", "--url", url])
        assert "group math: 100 pairs" in shown.stdout

        rows = [
            {key: value for key, value in row.items() if key != "label"}
            for row in (grouped()[0], grouped()[110], grouped()[-1])
        ]
        out = tmp_path / "out.jsonl"
        asked = table(tmp_path / "rows.csv", rows)
        judged = runner.invoke(app, ["judge", str(asked), "--out", str(out), "--url", url])
        assert judged.exit_code == 0, judged.stderr
        judgments = [row["judgment"] for row in rows_of(out.read_text())]
        assert [each["threshold_of"] for each in judgments] == ["math", "all", "all"]

        replacing = runner.invoke(app, ["calibrate", str(file), "--replace", *options])
        assert "nothing was replaced" in one_line(replacing.stderr)
        effects = [line.split("\t") for line in replacing.stdout.splitlines()]
        assert [cells[:4] for cells in effects] == [
            ["0.1", "marginal", "", "all"],
            ["0.1", "marginal", "", "math"],
        ]

        rows[0]["group"] = "maths"
        asked = write_rows(tmp_path / "wrong.jsonl", rows)
        out = tmp_path / "wrong.out.jsonl"
        judged = runner.invoke(app, ["judge", str(asked), "--out", str(out), "--url", url])
        assert judged.exit_code == 1
        first, *others = [row["judgment"] for row in rows_of(out.read_text())]
        assert "code, math" in json.dumps(first["error"])
        assert all("error" not in row for row in others)


def test_groups_move_with_a_set(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "labels.jsonl", grouped())
    exported = tmp_path / "set.jsonl"
    with listening(application_of()) as url:
        options = ("--groups", "math, code", "--by-group", "--url", url)
        assert runner.invoke(app, ["calibrate", str(file), *options]).exit_code == 0
        moved = ["sets", "export", "default", "--out", str(exported), "--url", url]
        assert runner.invoke(app, moved).exit_code == 0
    with listening(application_of()) as url:
        arguments = ["sets", "import", str(exported), "--yes", "--url", url]
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0, result.stderr
        shown = runner.invoke(app, ["sets", "show", "default", "--url", url]).stdout
        assert "group math: 100 pairs, with separate thresholds" in one_line(shown)


@pytest.mark.parametrize("names", ["all", "two words", ",".join(f"g{k}" for k in range(17))])
def test_names_that_cannot_be_groups_are_refused_before_any_work(
    tmp_path: Path, names: str
) -> None:
    file = write_rows(tmp_path / "labels.jsonl", grouped())
    result = runner.invoke(app, ["calibrate", str(file), "--groups", names])
    assert result.exit_code == 1
    assert "--groups" in result.stderr
