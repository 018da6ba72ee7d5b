"""Rows that are written in any format are read back."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequestError
from app.files.reading import read_rows
from app.files.writing import format_of, write_rows

ROWS: list[dict[str, Any]] = [
    {"text": 'a "b",\r\n\tc', "id": "1", "judgment": {"verdict": "A", "p": 0.5}},
    {"text": "\U0001f600", "judgment": {"verdict": "abstain", "p": 0.25}, "more": "x"},
]
TABLE = [
    {"text": 'a "b",\r\n\tc', "id": "1", "judgment": '{"verdict": "A", "p": 0.5}'},
    {"text": "\U0001f600", "judgment": '{"verdict": "abstain", "p": 0.25}', "more": "x"},
]


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "tsv", "parquet", "ndjson"])
def test_rows_are_read_back(tmp_path: Path, ending: str, compression: str) -> None:
    path = tmp_path / f"out.{ending}{compression}"
    write_rows(path, path, ROWS)
    expected = TABLE if ending in ("csv", "tsv") else ROWS
    assert [row.fields for row in read_rows(path)] == expected


def test_a_column_of_mixed_types_and_values_outside_json_are_written(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"x": 1, "day": date(2026, 1, 2)}, {"x": {"a": [1]}, "day": None}]
    path = tmp_path / "out.parquet"
    write_rows(path, path, rows)
    assert [row.fields["x"] for row in read_rows(path)] == ["1", '{"a": [1]}']
    write_rows(path, path, [{"x": [{"calls": [{}]}]}, {"x": []}])
    assert [row.fields["x"] for row in read_rows(path)] == ['[{"calls": [{}]}]', "[]"]
    path = tmp_path / "out.jsonl"
    write_rows(path, path, [*rows, {"x": "\ud800"}])
    assert [row.fields["x"] for row in read_rows(path)] == [1, {"a": [1]}, "\ud800"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.jsonl", "jsonl"), ("a", "jsonl"), ("A.CSV.gz", "csv"), ("x.y.parquet", "parquet")],
)
def test_a_name_asks_for_a_format(name: str, kind: str) -> None:
    assert format_of(Path(name)) == kind


def test_an_unknown_ending_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="must end in"):
        format_of(Path("out.xlsx"))
