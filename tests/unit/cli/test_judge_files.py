"""Tests of `scope-judge judge FILE --out X`: the rows that it reads and writes."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import app
from tests.unit.api.problems import comparison
from tests.unit.cli.commands import one_line, rows_of, write_rows
from tests.unit.cli.judging_service import (
    Service,
    expected,
    judged,
    judgment,
    pairs_in,
    partial_of,
    problem,
    runner,
)
from tests.unit.clients.planned import serving


def test_every_row_is_there_in_order_with_its_columns(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, note={"mine": [1]}), tmp_path / "out.jsonl"
    result = judged(Service(), file, out=out)
    assert result.exit_code == 0, result.stderr
    assert rows_of(out.read_text()) == expected(file)
    assert not partial_of(out).exists()
    assert "6 rows: A 6, B 0, abstained 0, errors 0" in result.stderr
    assert "Near 10% of these verdicts are wrong" in result.stderr
    assert "400 pairs of 'default'" in result.stderr


def test_an_input_column_never_vanishes(tmp_path: Path) -> None:
    mine = {"judgment": "mine", "verdict": "mine", "judge": "mine", "p_bar": "mine"}
    file, out = pairs_in(tmp_path, count=1, **mine), tmp_path / "out.jsonl"
    assert judged(Service(), file, out=out).exit_code == 0
    (row,) = rows_of(out.read_text())
    assert {name: row[name] for name in mine} == mine
    assert row["judgment_judgment"]["verdict"] == "A"
    table = tmp_path / "out.csv"
    assert judged(Service(), file, out=table).exit_code == 0
    with table.open(newline="") as opened:
        (row,) = csv.DictReader(opened)
    assert {name: row[name] for name in mine} == mine
    assert (row["judgment_verdict"], row["judgment_p_bar"], row["reason"]) == ("A", "0.01", "")


def test_equal_comparisons_are_judged_once_and_all_have_the_result(tmp_path: Path) -> None:
    rows = [{**comparison(question="q"), "mine": number} for number in range(5)]
    file, out = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "out.jsonl"
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert len(service.asked) == 1
    assert rows_of(out.read_text()) == expected(file)


def test_several_files_of_several_shapes_are_judged(tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    pairs_in(inputs, count=2)
    with gzip.open(inputs / "dpo.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["prompt", "chosen", "rejected"], ["Which?", "good", "bad"]])
    service, out = Service(), tmp_path / "out.csv"
    result = judged(service, inputs, out=out)
    assert result.exit_code == 0, result.stderr
    with out.open(newline="") as opened:
        found = list(csv.DictReader(opened))
    assert [row["prompt"] for row in found] == ["Which?", "", ""]
    assert [row["question"] for row in found] == ["", "q", "qq"]
    assert [row["verdict"] for row in found] == ["A"] * 3
    # A label is not sent: a judgment does not need it.
    assert service.asked[0] == {"question": "Which?", "response_a": "good", "response_b": "bad"}


def test_only_verdicts_are_written_on_request(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, count=6), tmp_path / "out.jsonl"
    service = Service()
    abstained = iter([False, True, True, False, True, False])
    answer = service.result
    service.result = lambda item: (
        {**answer(item), "verdict": "abstain"} if next(abstained) else answer(item)
    )
    result = judged(service, file, "--only-verdicts", out=out)
    assert result.exit_code == 0, result.stderr
    verdicts = [row["judgment"]["verdict"] for row in rows_of(out.read_text())]
    assert len(verdicts) == 3
    assert "abstain" not in verdicts


def test_the_toy_and_its_set_are_named_first(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, count=1), tmp_path / "out.jsonl"
    said = judged(Service(), file, out=out).stderr
    assert said.startswith("note: the demo judge is a toy")
    said = judged(Service(), file, "--calibration", "mine", "--overwrite", out=out).stderr
    assert "toy" not in said


def test_a_row_without_a_comparison_has_its_own_error(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, count=2), tmp_path / "out.jsonl"
    wrong = '{"question": "x", "response_a": true, "response_b": "y"}\n'
    file.write_text(wrong + file.read_text())
    service = Service()
    result = judged(service, file, out=out)
    assert result.exit_code == 1
    first, *_ = rows_of(out.read_text())
    assert first["judgment"]["error"]["code"] == "invalid_comparison"
    assert len(service.asked) == 2
    assert "error invalid_comparison, 1: e.g." in result.stderr
    assert "1 of 3 rows got no judgment" in result.stderr


def test_a_file_without_any_comparison_names_its_first_complete_row(tmp_path: Path) -> None:
    wrong: list[Any] = [None, True, []]
    rows = [{"question": "x", "response_a": each, "response_b": "y"} for each in wrong]
    file, service = write_rows(tmp_path / "pairs.jsonl", rows), Service()
    result = judged(service, file, out=tmp_path / "out.jsonl")
    assert f"{file}, line 2: response_a is neither a text nor" in one_line(result.stderr)
    assert service.asked == []


@pytest.mark.parametrize("code", ["calibration_not_found", "labels_missing"])
def test_a_row_with_a_set_of_its_own_has_its_own_error(code: str, tmp_path: Path) -> None:
    own = {"calibration": "mine"}
    error = problem(code, "the row cannot be judged")

    def result(item: dict[str, Any]) -> dict[str, Any]:
        return {"id": None, "error": error} if own.items() <= item.items() else judgment(item)

    file, out = pairs_in(tmp_path, count=2), tmp_path / "out.jsonl"
    with file.open("a") as opened:
        opened.write(json.dumps(comparison(**own)) + "\n")
    assert judged(Service(result=result), file, out=out).exit_code == 1
    *others, last = rows_of(out.read_text())
    assert [row["judgment"]["verdict"] for row in others] == ["A", "A"]
    assert error.items() <= last["judgment"]["error"].items()


def test_the_address_may_be_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pairs_in(tmp_path)
    with serving(Service()) as service:
        monkeypatch.setenv("SCOPE_URL", service.url)
        found = runner.invoke(app, ["judge", str(file)])
        bulk = runner.invoke(app, ["judge", str(file), "--ray", "--alpha", "2"])
    assert found.exit_code == 0, found.stderr
    assert rows_of(found.stdout) == expected(file)
    assert "alpha" in bulk.stderr, "an address that was not typed does not forbid --ray"
