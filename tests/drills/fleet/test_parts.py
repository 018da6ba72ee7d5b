"""Parts of bulk input: every row once and in order, and changed files are noticed."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from app.core.errors import InvalidRequestError, StartupError, UnavailableError
from app.fleet.parts import LinesPart, Row, cut


def write_lines(path: Path, count: int, *, first: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": i}) + "\n" for i in range(first, first + count)))


def ids(rows: list[Row]) -> list[Any]:
    return [row.value["id"] for row in rows]


def test_every_row_is_in_one_part_and_parts_are_in_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "b.jsonl", 7, first=5)
    write_lines(tmp_path / "in" / "a.jsonl", 5)
    whole = cut([tmp_path / "in"], rows_per_part=3)
    read = [part.read() for part in whole.parts]
    assert [part.shard for part in whole.parts] == ["a.jsonl"] * 2 + ["b.jsonl"] * 3
    assert [len(rows) for rows in read] == [3, 2, 3, 3, 1] == [part.rows for part in whole.parts]
    assert [i for rows in read for i in ids(rows)] == list(range(12))
    assert [row.place for rows in read for row in rows] == [*range(5), *range(7)]
    assert whole == cut([tmp_path / "in"], rows_per_part=3)


def test_blank_lines_are_no_rows_and_a_last_line_needs_no_line_break(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('\n{"id": 0}\n \n\n{"id": 1}\r\n\n{"id": 2}')
    whole = cut([file], rows_per_part=2)
    assert [ids(part.read()) for part in whole.parts] == [[0, 1], [2]]
    assert whole.shards[0].rows == 3


def test_a_line_that_is_no_json_is_an_error_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 0}\n{"id"\n[1]\n' + "[" * 100_000 + "\n")
    (part,) = cut([file], rows_per_part=9).parts
    values = [row.value for row in part.read()]
    assert values[0] == {"id": 0}
    assert isinstance(values[1], InvalidRequestError)
    assert values[2] == [1]
    assert isinstance(values[3], InvalidRequestError)


def test_other_columns_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 0, "label": "A", "alpha": null}\n')
    (part,) = cut([file], rows_per_part=9).parts
    assert part.read()[0].value == {"id": 0, "alpha": None}


def test_a_part_of_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_lines(file, 4)
    first, second = cut([file], rows_per_part=2).parts
    file.write_text(file.read_text().replace("3", "7"))
    assert ids(first.read()) == [0, 1]
    with pytest.raises(StartupError, match="has changed"):
        second.read()


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_part_that_cannot_be_read_may_be_read_later(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name == "a.jsonl":
        write_lines(file, 2)
    else:
        parquet.write_table(pyarrow.table({"id": [0, 1]}), file)
    (part,) = cut([file], rows_per_part=2).parts
    away = file.rename(tmp_path / "away")
    with pytest.raises(UnavailableError, match="cannot be read"):
        part.read()
    away.rename(file)
    assert ids(part.read()) == [0, 1]


def test_a_table_is_cut_within_its_row_groups(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    turns = [{"role": "user", "content": "q"}]
    table = pyarrow.table({"id": range(7), "question": [turns] * 7, "other": ["x"] * 7})
    parquet.write_table(table, file, row_group_size=4)
    parts = cut([file], rows_per_part=3).parts
    assert [ids(part.read()) for part in parts] == [[0, 1, 2], [3], [4, 5, 6]]
    assert [row.place for part in parts for row in part.read()] == list(range(7))
    assert parts[0].read()[0].value == {"id": 0, "question": turns}


def test_an_empty_cell_of_a_table_is_a_missing_field(tmp_path: Path) -> None:
    # In JSON, null would mean: a verdict on every pair, without a guarantee.
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"alpha": [0.2, None], "question": ["q", None]}), file)
    (part,) = cut([file], rows_per_part=3).parts
    values = [row.value for row in part.read()]
    assert values == [{"alpha": 0.2, "question": "q"}, {"question": None}]


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet", "empty", "text.parquet"])
def test_an_unreadable_input_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(StartupError, match=name):
        cut([tmp_path / name], rows_per_part=3)


def test_two_shards_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        write_lines(tmp_path / folder / "a.jsonl", 1)
    with pytest.raises(StartupError, match="same name"):
        cut([tmp_path / "x", tmp_path / "y"], rows_per_part=3)


def test_parts_know_the_bytes_of_their_shard(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_lines(file, 25)
    parts = [part for part in cut([file], rows_per_part=4).parts if isinstance(part, LinesPart)]
    assert b"".join(file.read_bytes()[part.offset : part.offset + part.size] for part in parts) == (
        file.read_bytes()
    )
