"""Rows that are written in any format are read back."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequestError
from app.files.reading import read_rows
from app.files.writing import format_of, json_line, replace_file

ROWS: list[dict[str, Any]] = [
    {"text": 'a "b",\r\n\tc', "id": "1", "judgment": {"verdict": "A", "p": 0.5}},
    {"text": "\U0001f600", "judgment": {"verdict": "abstain", "p": 0.25}, "more": "x"},
]
TABLE = [
    {"text": 'a "b",\r\n\tc', "id": "1", "judgment": '{"verdict": "A", "p": 0.5}'},
    {"text": "\U0001f600", "judgment": '{"verdict": "abstain", "p": 0.25}', "more": "x"},
]


def test_a_line_that_is_printed_steers_no_terminal_and_has_the_same_value() -> None:
    row = {"a\x9b": "\x1b]0;x\x07\x7f\x9b2J\u202e\u2028\ud800\n\t"}
    line = json_line(row)
    assert line.isprintable()
    assert json.loads(line) == row


def test_csv_has_the_delimiter_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    replace_file(path, [{"a": "x;y", "b": 0.5}], delimiter=";")
    assert path.read_bytes() == b'a;b\n"x;y";0.5\n'
    (row,) = read_rows(path)
    assert (row.fields, row.delimiter) == ({"a": "x;y", "b": "0.5"}, ";")


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "tsv", "xlsx", "parquet", "ndjson"])
def test_rows_are_read_back(tmp_path: Path, ending: str, compression: str) -> None:
    path = tmp_path / f"out.{ending}{compression}"
    replace_file(path, ROWS)
    expected = TABLE if ending in ("csv", "tsv", "xlsx") else ROWS
    found = [row.fields for row in read_rows(path)]
    assert [{n: v for n, v in row.items() if v is not None} for row in found] == expected


def test_a_column_of_mixed_types_and_values_outside_json_are_written(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"x": 1, "day": date(2026, 1, 2)}, {"x": {"a": [1]}, "day": None}]
    path = tmp_path / "out.parquet"
    replace_file(path, rows)
    assert [row.fields["x"] for row in read_rows(path)] == ["1", '{"a": [1]}']
    replace_file(path, [{"x": [{"calls": [{}]}]}, {"x": []}])
    assert [row.fields["x"] for row in read_rows(path)] == ['[{"calls": [{}]}]', "[]"]
    for ending in ("parquet", "csv"):
        path = tmp_path / f"half.{ending}"
        replace_file(path, [{"x": "\ud800", "y\ud800": "z"}])
        assert [row.fields for row in read_rows(path)] == [{"x": "\\ud800", "y\\ud800": "z"}]
    path = tmp_path / "out.jsonl"
    replace_file(path, [*rows, {"x": "\ud800"}])
    assert [row.fields["x"] for row in read_rows(path)] == [1, {"a": [1]}, "\ud800"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.jsonl", "jsonl"), ("a", "jsonl"), ("A.CSV.gz", "csv"), ("x.y.parquet", "parquet")],
)
def test_a_name_asks_for_a_format(name: str, kind: str) -> None:
    assert format_of(Path(name)) == kind


def test_a_workbook_has_texts_as_they_are_and_numbers_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    texts = ["=1+1", "-1", "5", "a\r\nb\x0b", " x ", "_x0041", "'q", "\u202e\U0001f600"]
    row: dict[str, Any] = {f"t{number}": text for number, text in enumerate(texts)}
    row |= {"n": 3, "p": 0.5, "yes": True, "none": None, "list": [1], "=name": "x"}
    replace_file(path, [row, {"yes": False}])
    first, second = (found.fields for found in read_rows(path))
    assert first == {**row, "list": "[1]"}
    assert list(second) == list(row)
    assert not any(second.values())
    assert second["yes"] is False
    with pytest.raises(InvalidRequestError, match="row 3: t has 32,768 characters"):
        replace_file(path, [{"t": "x"}, {"t": "x" * 32_768}])
    assert [found.fields for found in read_rows(path)] == [first, second]
