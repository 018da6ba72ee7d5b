"""`scope-judge curve` on files of every format, and on pairs that nobody has judged yet."""

import itertools
import random
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.writing import replace_file
from tests.unit.cli.commands import one_line


def run(*arguments: str | Path, **environment: str) -> Result:
    given = ["curve", *map(str, arguments)]
    return CliRunner().invoke(app, given, env={"COLUMNS": "200", **environment})


def pairs(n: int = 60) -> list[dict[str, Any]]:
    """Labeled pairs on which the scripted judge is right more often when it is more certain."""
    rng = random.Random(4)
    rows = []
    for i in range(n):
        quality = round(rng.gauss(0, 2), 3)
        right = rng.random() < 0.5 + min(0.5, abs(quality) / 3)
        rows.append(
            {
                "question": f"Question {i}, or not?",
                "response_a": f"quality={quality}",
                "response_b": f"quality=0 of {i}",
                "label": "A" if (quality > 0) == right else "B",
            }
        )
    return rows


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    replace_file(path, rows)
    return path


@pytest.fixture(scope="module")
def judged(url: str, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The pairs with their judgments, and a pair that got an error."""
    rows = pairs()
    bodies = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    answer = httpx.post(f"{url}/judge/batch", json={"alpha": None, "comparisons": bodies}).json()
    found = [
        {**row, "judgment": {k: v for k, v in result.items() if k != "id"}}
        for row, result in zip(rows, answer["results"], strict=True)
    ]
    error = {"error": {"code": "prompt_too_long", "detail": "too long"}}
    return [*found, {**rows[0], "question": "x", "judgment": error}]


def flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**{k: v for k, v in row.items() if k != "judgment"}, **row["judgment"]} for row in rows
    ]


def own_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Labels in a data set's words, without texts, and a column whose name a result would take."""
    return [
        {"label": f"model_{row['label'].lower()}", "verdict": "mine", "p_fwd": 3}
        | {
            f"judgment_{k}" if k in ("verdict", "p_fwd") else k: v
            for k, v in row["judgment"].items()
        }
        for row in rows
    ]


def probabilities(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "label": row["label"],
            "p_fwd": row["judgment"]["p_fwd"],
            "p_rev": row["judgment"]["p_rev"],
        }
        for row in rows
        if "p_fwd" in row["judgment"]
    ]


@pytest.fixture(scope="module")
def screen(judged: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The screen of the smallest file with the judgments."""
    folder: Path = tmp_path_factory.mktemp("expected")
    screen = run(written(folder / "expected.jsonl", probabilities(judged))).stdout
    assert screen.startswith("60 labels without ties, accuracy 0.")
    return screen


# A compressed file has the rows of the file in it.
@pytest.mark.parametrize(
    ("shaped", "ending"),
    [
        *itertools.product([list, own_words], ("jsonl", "csv", "parquet")),
        (probabilities, "tsv"),
        (flat, "json"),
        (flat, "csv.zst"),
    ],
)
def test_every_format_and_shape_gives_the_same_screen(
    judged: list[dict[str, Any]], screen: str, ending: str, shaped: Any, tmp_path: Path
) -> None:
    result = run(written(tmp_path / f"rows.{ending}", shaped(judged)))
    assert result.exit_code == 0, result.output
    assert result.stdout == screen
    if shaped is not probabilities:
        assert "61 rows: 60 usable, 1 unusable" in result.stderr
        assert "unusable, 1: no p_fwd and p_rev" in one_line(result.stderr)


def test_answers_of_several_judges_are_refused(
    judged: list[dict[str, Any]], tmp_path: Path
) -> None:
    other = [{**judged[0], "judgment": {**judged[0]["judgment"], "judge": "other"}}]
    result = run(written(tmp_path / "rows.jsonl", judged + other))
    assert result.exit_code == 1
    assert "answers of several judges (other, scripted): give those of one at a time" in one_line(
        result.output
    )


def test_unjudged_pairs_are_judged_by_the_service_first(
    judged: list[dict[str, Any]], url: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "pairs.csv", pairs())
    result = run(file, "--url", url)
    assert result.exit_code == 0, result.output
    assert "These 60 pairs are not judged yet: the service at" in one_line(result.output)
    out = tmp_path / "pairs-judged.jsonl"
    assert result.stdout == run(written(tmp_path / "e.jsonl", judged)).stdout
    assert run(out).stdout == result.stdout
    again = run(file, "--url", url)
    assert again.exit_code == 1
    assert f"{out} already exists: `scope-judge curve {out}` reads it" in one_line(again.output)
    mapped = run(file, "--url", url, "--map", "label=label")
    assert f"`scope-judge curve {out}` with the same --map reads it" in one_line(mapped.output)


def test_without_a_service_and_a_judge_the_error_says_both_ways(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        result = run(written(tmp_path / "pairs.jsonl", pairs(3)), "--url", address)
    assert result.exit_code == 1
    assert "start the service with `scope-judge serve`" in one_line(result.output)
    assert "or load a judge with `scope-judge evaluate FILE --judge MODEL`" in one_line(
        result.output
    )
