"""Parts of bulk input: every row once and in order, and changed files are noticed."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from app.core.errors import StartupError, UnavailableError
from app.fleet.parts import Cut, PartRow, cut
from app.fleet.sources import sources_of


def fields(number: int) -> dict[str, Any]:
    return {"id": number, "question": f"q{number}", "response_a": "a", "response_b": "b"}


def line(number: int) -> str:
    return json.dumps(fields(number)) + "\n"


def write_lines(path: Path, count: int, *, first: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(map(line, range(first, first + count))))


def cut_all(inputs: list[Path], *, rows_per_part: int, shape: str | None = None) -> Cut:
    return cut(sources_of(inputs, inputs[0].parent / "input", shape), rows_per_part=rows_per_part)


def ids(rows: list[PartRow]) -> list[Any]:
    return [row.value["id"] for row in rows]


def test_every_row_is_in_one_part_and_parts_are_in_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "b.jsonl", 7, first=5)
    write_lines(tmp_path / "in" / "a.jsonl", 5)
    whole = cut_all([tmp_path / "in"], rows_per_part=3)
    read = [part.read() for part in whole.parts]
    assert [part.shard for part in whole.parts] == ["a.jsonl"] * 2 + ["b.jsonl"] * 3
    assert [len(rows) for rows in read] == [3, 2, 3, 3, 1] == [part.rows for part in whole.parts]
    assert [i for rows in read for i in ids(rows)] == list(range(12))
    assert [row.place for rows in read for row in rows] == [*range(5), *range(7)]
    assert whole == cut_all([tmp_path / "in"], rows_per_part=3)


def test_blank_lines_are_no_rows_and_a_last_line_needs_no_line_break(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f"\n{line(0)} \n\n{line(1).rstrip()}\r\n\n{line(2).rstrip()}")
    whole = cut_all([file], rows_per_part=2)
    assert [ids(part.read()) for part in whole.parts] == [[0, 1], [2]]
    assert whole.shards[0].rows == 3


def test_a_row_without_a_comparison_is_an_error_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    short = json.dumps({"id": 7, "question": "q", "response_a": "a"})
    file.write_text(f'{line(0)}{{"id"\n[1]\n{"[" * 100_000}\n{short}\n')
    (part,) = cut_all([file], rows_per_part=9).parts
    rows = part.read()
    assert [row.value for row in rows] == [fields(0), None, [1], None, {"id": 7}]
    errors = [None if row.error is None else row.error.detail for row in rows]
    no_json = "this line is not JSON"
    missing = "response_b is missing; there is id, question, response_a"
    assert errors == [None, no_json, None, no_json, missing]


def test_a_row_with_two_columns_of_one_name_is_an_error_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f'{line(0)}{{"id": 7, "response_a": "a", "response_a": "b"}}\n')
    (part,) = cut_all([file], rows_per_part=9).parts
    rows = part.read()
    assert [row.value for row in rows] == [fields(0), None]
    assert rows[1].error is not None
    assert rows[1].error.detail == "this line: the column 'response_a' occurs twice"


def test_other_columns_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({**fields(0), "label": "A", "x": 1, "alpha": None}) + "\n")
    (part,) = cut_all([file], rows_per_part=9).parts
    assert part.read()[0].value == {**fields(0), "alpha": None}


PREFERENCE = {"id": 3, "prompt": "q3", "chosen": "a", "rejected": "b"}
TABLE = "id,question,response_a,response_b\n3,q3,a,b\n"


@pytest.mark.parametrize(
    ("name", "content", "shape"),
    [
        ("a.csv", TABLE.encode(), None),
        ("a.csv", TABLE.encode("utf-16"), None),
        ("a.csv.gz", gzip.compress(TABLE.encode(), mtime=0), None),
        ("a.json", json.dumps([fields(3)], indent=1).encode(), None),
        ("a.jsonl", line(3).encode("utf-16-be"), None),
        ("a.jsonl", b"\xef\xbb\xbf" + line(3).encode(), None),
        ("a.jsonl.gz", gzip.compress(line(3).encode(), mtime=0), None),
        ("a.jsonl.zst", pyarrow.compress(line(3).encode(), "zstd", asbytes=True), None),
        ("a.jsonl", json.dumps(PREFERENCE).encode(), None),
        ("a.jsonl", json.dumps(PREFERENCE).encode(), "preference"),
        (
            "a.jsonl",
            json.dumps(PREFERENCE).encode(),
            "question=prompt,response_a=chosen,response_b=rejected",
        ),
    ],
)
def test_every_format_and_shape_is_read(
    tmp_path: Path, name: str, content: bytes, shape: str | None
) -> None:
    bom = "\ufeff".encode("utf-16-be")
    file = tmp_path / name
    file.write_bytes(bom + content if content.startswith(b"\0") else content)
    whole = cut_all([file], rows_per_part=9, shape=shape)
    ((row,),) = [part.read() for part in whole.parts]
    assert row.error is None
    assert {**row.value, "id": int(row.value["id"])} == fields(3)
    assert row.place == 0
    assert [shard.source.name for shard in whole.shards] == [name]
    assert whole == cut_all([file], rows_per_part=9, shape=shape)


def test_preference_data_in_parquet_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([PREFERENCE] * 3), file)
    (part,) = cut_all([file], rows_per_part=9).parts
    assert [row.value for row in part.read()] == [fields(3)] * 3


def test_a_part_of_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_lines(file, 4)
    first, second = cut_all([file], rows_per_part=2).parts
    file.write_text(file.read_text().replace("q3", "q7"))
    assert ids(first.read()) == [0, 1]
    with pytest.raises(StartupError, match="has changed"):
        second.read()


def test_a_part_that_cannot_be_read_may_be_read_later(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_lines(file, 2)
    (part,) = cut_all([file], rows_per_part=2).parts
    away = file.rename(tmp_path / "away")
    with pytest.raises(UnavailableError, match="cannot be read"):
        part.read()
    away.rename(file)
    assert ids(part.read()) == [0, 1]


def test_the_rows_of_a_table_keep_their_order_and_their_messages(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    turns = [{"role": "user", "content": "q"}]
    rows = [{**fields(i), "question": turns, "other": "x"} for i in range(7)]
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, file, row_group_size=4)
    parts = cut_all([file], rows_per_part=3).parts
    assert [ids(part.read()) for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [row.place for part in parts for row in part.read()] == list(range(7))
    assert parts[0].read()[0].value == {**fields(0), "question": turns}


def test_an_empty_cell_of_a_table_is_a_missing_field(tmp_path: Path) -> None:
    # In JSON, null would mean: a verdict on every pair, without a guarantee.
    file = tmp_path / "a.parquet"
    rows = [{**fields(0), "alpha": 0.2}, {**fields(1), "alpha": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    (part,) = cut_all([file], rows_per_part=3).parts
    assert [row.value for row in part.read()] == [rows[0], fields(1)]


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet", "empty", "text.parquet"])
def test_an_unreadable_input_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no table\n")
    with pytest.raises(StartupError, match=name):
        cut_all([tmp_path / name], rows_per_part=3)


def test_two_shards_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        write_lines(tmp_path / folder / "a.jsonl", 1)
    with pytest.raises(StartupError, match="same name"):
        cut_all([tmp_path / "x", tmp_path / "y"], rows_per_part=3)


def test_parts_know_the_bytes_of_their_shard(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    write_lines(file, 25)
    parts = cut_all([file], rows_per_part=4).parts
    assert b"".join(file.read_bytes()[part.offset : part.offset + part.size] for part in parts) == (
        file.read_bytes()
    )
