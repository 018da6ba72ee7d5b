from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from app.core.errors import InvalidRequestError
from app.files.table import read_table
from app.files.writing import replace_file

COLUMNS = {"id": None, "name": pyarrow.string(), "p": pyarrow.float64(), "ok": pyarrow.bool_()}
ROWS = [
    {"id": 1, "name": "a, b", "p": 0.25, "ok": True, "text": "long"},
    {"id": 2, "name": 'say "x"\nand y', "p": None, "ok": False, "text": "longer"},
]


@pytest.mark.parametrize(
    "ending", ["jsonl", "parquet", "csv", "tsv", "json", "csv.gz", "jsonl.zst"]
)
def test_every_format_has_the_wanted_columns_only(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{ending}"
    replace_file(path, ROWS)
    table = read_table(path, COLUMNS)
    assert set(table.column_names) == set(COLUMNS)
    assert table["name"].to_pylist() == [row["name"] for row in ROWS]
    assert [str(value) for value in table["id"].to_pylist()] == ["1", "2"]
    values = table["p"].to_pylist()
    assert float(values[0]) == 0.25
    assert values[1] is None


def test_a_column_of_two_types_is_read_as_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n{"id": "one"}\n')
    assert read_table(path, COLUMNS)["id"].to_pylist() == ["1", "one"]


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    lines.write_text('{"id": 1, "name": "A", "name": "B"}\n')
    names = [pyarrow.array(["A"]), pyarrow.array(["B"])]
    parquet.write_table(pyarrow.Table.from_arrays(names, ["name", "name"]), table)
    for path in (lines, table):
        with pytest.raises(InvalidRequestError, match="the column 'name' occurs twice"):
            read_table(path, COLUMNS)


def test_plain_files_are_parsed_without_a_loop_over_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise AssertionError(f"{path} was read row by row")

    monkeypatch.setattr("app.files.table.read_rows", fail)
    for ending in ("jsonl", "parquet", "csv"):
        path = tmp_path / f"rows.{ending}"
        replace_file(path, ROWS)
        assert read_table(path, COLUMNS).num_rows == 2
