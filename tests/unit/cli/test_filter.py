"""`scope-judge filter`: no abstention, tie or error is kept."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.unit.cli.commands import BAD, GOOD, SAME, one_line, rows_of, write_rows

runner = CliRunner()


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
    paths = [str(write_rows(folder / "in.jsonl", rows)), "--out", str(folder / "out.jsonl")]
    return runner.invoke(app, ["filter", *paths, "--url", url, "--alpha", "0.1", *options])


def rows_in(file: Path) -> list[dict[str, Any]]:
    return rows_of(file.read_text())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pair_is_kept_or_dropped(shape: Any, service: str, tmp_path: Path) -> None:
    rows = [shape(GOOD, BAD), shape(BAD, GOOD), shape(GOOD, SAME)]
    result = filtered(service, tmp_path, rows)
    assert result.exit_code == 0, result.stderr
    (kept,) = rows_in(tmp_path / "out.jsonl")
    assert {name: kept[name] for name in rows[0]} == rows[0]
    assert kept["p_bar"] > 0.9
    assert 0 < kept["risk_level"] <= 0.1
    assert "dropped, 1: the judge prefers the other response" in result.stderr
    assert "dropped, 1: too uncertain for alpha" in result.stderr


def test_no_tie_abstention_or_error_is_kept(service: str, tmp_path: Path) -> None:
    first = labelled(GOOD, BAD)
    blank = labelled(GOOD, " ")
    calls = {**first, "response_b": [{**said("assistant", ""), "tool_calls": [1]}]}
    others = [{**first, "label": label} for label in ("tie", "abstain", "")]
    result = filtered(service, tmp_path, [first, *others, blank, calls])
    assert result.exit_code == 1
    assert "4 of 6 rows got no judgment" in result.stderr
    assert "6 pairs: kept 1, dropped 5" in result.stderr
    assert "dropped, 1: the label is a tie" in result.stderr
    assert "dropped, 4: an error" in result.stderr
    told = one_line(result.stderr)
    assert (
        f"error invalid_comparison, 4: e.g. {tmp_path}/in.jsonl, line 3: the label 'abstain'"
        in told
    )
    assert [row["label"] for row in rows_in(tmp_path / "out.jsonl")] == ["A"]


@pytest.mark.parametrize("column", ["human", "label"])
def test_a_row_that_leaves_out_its_label_is_not_a_preference(
    column: str, service: str, tmp_path: Path
) -> None:
    battle = {**unlabelled(GOOD, BAD), "model_a": "x", "model_b": "y"}
    rows = [battle, {**battle, column: "model_b"}, {**battle, column: "model_a"}]
    result = filtered(service, tmp_path, rows)
    assert "1 of 3 rows got no judgment" in result.stderr
    assert "dropped, 1: the judge prefers the other response" in result.stderr
    assert [row[column] for row in rows_in(tmp_path / "out.jsonl")] == ["model_a"]


def test_the_summary_bounds_the_wrong_pairs(service: str, tmp_path: Path) -> None:
    rows = [labelled(f"quality=4.0{i}", BAD) for i in range(10)]
    rows += [labelled(BAD, f"quality=4.1{i}") for i in range(10)]
    kept = filtered(service, tmp_path, rows)
    assert "Near 10% of these verdicts are wrong" in kept.stderr
    assert "So near 2 of the 10 kept pairs are the wrong way round (20%)" in kept.stderr


@pytest.mark.parametrize("command", ["filter", "judge"])
@pytest.mark.parametrize(("guarantee", "least"), [("marginal", "1,000"), ("pac", "9,273")])
def test_an_infeasible_alpha_is_refused_after_the_first_rows(
    command: str, guarantee: str, least: str, service: str, tmp_path: Path
) -> None:
    rows = [labelled(f"quality=4.{i:03}", BAD) for i in range(1000)]
    file = write_rows(tmp_path / "in.jsonl", rows)
    options = ["--out", str(tmp_path / "out.jsonl"), "--alpha", "0.001", "--url", service]
    result = runner.invoke(app, [command, str(file), *options, "--guarantee", guarantee])
    assert result.exit_code == 1, result.stderr
    told = f"The labels of 'default' support no verdict at alpha 0.001 with {guarantee}, which "
    assert f"{told}needs {least} of them or more: there are 200." in one_line(result.stderr)
    assert not list(tmp_path.glob("out*"))
    assert "(`scope-judge sets show default` says whether more help)" in one_line(result.stderr)
