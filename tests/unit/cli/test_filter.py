"""`scope-judge filter`: no abstention, tie or error is kept, and a flipped pair is turned round."""

from pathlib import Path
from typing import Any

import httpx
import pyarrow
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.reading import read_rows
from tests.unit.cli.commands import rows_of, write_rows

runner = CliRunner()
GOOD, BAD, SAME = "quality=4", "quality=0", "quality=3.9"


def calibrated(url: str) -> str:
    """Calibrates the service: it is right where it is sure, and guesses where it is not."""
    examples: list[dict[str, Any]] = []
    for i in range(200):
        sure = i % 2 == 0
        pair = {"question": f"q{i}", "response_a": GOOD, "response_b": BAD if sure else SAME}
        examples.append({**pair, "label": "A" if sure or i % 4 == 1 else "B"})
    httpx.post(f"{url}/calibrate", json={"examples": examples}).raise_for_status()
    return url


@pytest.fixture
def service(clean_url: str) -> str:
    return calibrated(clean_url)


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def standard(chosen: str, rejected: str) -> dict[str, Any]:
    return {"prompt": "Which?", "chosen": chosen, "rejected": rejected}


def conversational(chosen: str, rejected: str) -> dict[str, Any]:
    return {
        "prompt": [said("user", "Which?")],
        "chosen": [said("assistant", chosen)],
        "rejected": [said("assistant", rejected)],
    }


def implicit(chosen: str, rejected: str) -> dict[str, Any]:
    asked = said("user", "Which?")
    return {
        "chosen": [asked, said("assistant", chosen)],
        "rejected": [asked, said("assistant", rejected)],
    }


def labelled(chosen: str, rejected: str) -> dict[str, Any]:
    return {"question": "Which?", "response_a": chosen, "response_b": rejected, "label": "A"}


def unlabelled(chosen: str, rejected: str) -> dict[str, Any]:
    return {"question": "Which?", "response_a": chosen, "response_b": rejected}


SHAPES = [standard, conversational, implicit, labelled, unlabelled]


def filtered(url: str, folder: Path, rows: list[dict[str, Any]], *options: str) -> Result:
    write_rows(folder / "in.jsonl", rows)
    paths = ["--out", str(folder / "out.jsonl"), "--review", str(folder / "review.jsonl")]
    return runner.invoke(
        app, ["filter", str(folder / "in.jsonl"), *paths, "--url", url, "--alpha", "0.1", *options]
    )


def rows_in(file: Path) -> list[dict[str, Any]]:
    return rows_of(file.read_text())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pair_is_kept_dropped_or_turned_round(shape: Any, service: str, tmp_path: Path) -> None:
    rows = [shape(GOOD, BAD), shape(BAD, GOOD), shape(GOOD, SAME)]
    result = filtered(service, tmp_path, rows)
    assert result.exit_code == 0, result.stderr
    (kept,) = rows_in(tmp_path / "out.jsonl")
    assert {name: kept[name] for name in rows[0]} == rows[0]
    assert kept["decision"] == "keep"
    assert kept["p_bar"] > 0.9
    assert 0 < kept["risk_level"] <= 0.1
    other, unsure = rows_in(tmp_path / "review.jsonl")
    assert other["reason"] == "the judge prefers the other response"
    assert other["p_bar"] < 0.1
    assert (unsure["decision"], unsure["reason"]) == ("drop", "too uncertain for alpha")

    for name in ("out.jsonl", "review.jsonl"):
        (tmp_path / name).unlink()
    assert filtered(service, tmp_path, rows, "--flip").exit_code == 0
    kept, flipped = rows_in(tmp_path / "out.jsonl")
    assert (kept["decision"], flipped["decision"]) == ("keep", "flip")
    assert flipped["p_bar"] > 0.9
    columns = {name: flipped[name] for name in rows[1]}
    if shape is labelled:
        assert columns == {**rows[1], "label": "B"}
    else:
        assert columns == rows[0], "the judge's pair, in the shape of the input"


def test_no_tie_abstention_or_error_is_kept(service: str, tmp_path: Path) -> None:
    tie = {**labelled(GOOD, BAD), "label": "tie"}
    blank = labelled(GOOD, " ")
    calls = {**labelled(GOOD, BAD), "response_b": [{**said("assistant", ""), "tool_calls": [1]}]}
    unknown = {**labelled(GOOD, BAD), "label": "abstain"}
    rows = [labelled(GOOD, BAD), tie, blank, calls, unknown]
    result = filtered(service, tmp_path, rows, "--flip")
    assert result.exit_code == 1
    assert "3 of 5 pairs got no judgment and were dropped" in result.stderr
    assert "5 pairs: kept 1, flipped 0, dropped 4" in result.stderr
    assert [row["label"] for row in rows_in(tmp_path / "out.jsonl")] == ["A"]
    dropped = rows_in(tmp_path / "review.jsonl")
    assert [row["decision"] for row in dropped] == ["drop"] * 4
    assert [row["reason"].partition(":")[0] for row in dropped] == [
        "the label is a tie",
        *["invalid_comparison"] * 3,
    ]
    assert dropped[1]["p_bar"] is None


def test_the_summary_bounds_the_wrong_pairs(service: str, tmp_path: Path) -> None:
    rows = [labelled(f"quality=4.0{i}", BAD) for i in range(10)]
    rows += [labelled(BAD, f"quality=4.1{i}") for i in range(10)]
    kept = filtered(service, tmp_path, rows, "--overwrite")
    assert "Near 10% of these verdicts are wrong" in kept.stderr
    assert "So near 2 of the 10 written pairs are the wrong way round (20%)" in kept.stderr
    both = filtered(service, tmp_path, rows, "--overwrite", "--flip")
    assert "So near 2 of the 20 written pairs are the wrong way round (10%)" in both.stderr


def test_order_columns_and_format_stay(service: str, tmp_path: Path) -> None:
    rows = [
        {**standard(f"quality=4.{i}", BAD), "decision": i, "score": i / 7, "note": None}
        for i in range(30)
    ]
    file, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    command = ["filter", str(file), "--out", str(out), "--url", service]
    result = runner.invoke(app, command)
    assert result.exit_code == 0, result.stderr
    found = [row.fields for row in read_rows(out)]
    assert [row["decision"] for row in found] == list(range(30)), "the input's own column"
    assert [row["score"] for row in found] == [i / 7 for i in range(30)]
    assert {row["judgment_decision"] for row in found} == {"keep"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--alpha", "3"), "alpha"),
        (("--calibration", "nobody"), "there is no calibration 'nobody'"),
        (("--map", "question=prompt"), "line 1: prompt is missing"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_written(
    options: tuple[str, ...], message: str, service: str, tmp_path: Path
) -> None:
    result = filtered(service, tmp_path, [labelled(GOOD, BAD)], *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_an_existing_file_stays(service: str, tmp_path: Path) -> None:
    (tmp_path / "review.jsonl").write_text("mine\n")
    result = filtered(service, tmp_path, [labelled(GOOD, BAD)])
    assert "review.jsonl already exists" in result.stderr
    assert (tmp_path / "review.jsonl").read_text() == "mine\n"
    same = ["--out", str(tmp_path / "x.jsonl"), "--review", str(tmp_path / "x.jsonl")]
    arguments = ["filter", str(tmp_path / "in.jsonl"), *same, "--url", service]
    assert "must be two files" in runner.invoke(app, arguments).stderr
