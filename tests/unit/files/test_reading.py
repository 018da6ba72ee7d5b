"""Every format, compression and encoding is read alike, and whatever is wrong is named."""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from app.core.errors import InvalidRequestError
from app.files.reading import STDIN, FileRow, files_of, read_rows

# A line end of Windows, one of Unicode, a quote, both delimiters and a text outside ASCII.
ROWS: list[dict[str, Any]] = [
    {"id": "1", "question": "Which?\r\nNow.", "response_a": 'a "quoted", a;b\tc', "x": "\u2028"},
    {"id": "2", "question": "Wer \u00e4\u00df?", "response_a": "\U0001f600\nsecond line", "x": "2"},
]


def jsonl() -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def crlf_jsonl() -> bytes:
    return "".join(json.dumps(row) + "\r\n\r\n" for row in ROWS).encode()


def array() -> bytes:
    return json.dumps(ROWS, indent=2).encode()


def table(delimiter: str) -> Callable[[], bytes]:
    def make() -> bytes:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, ROWS[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
        return text.getvalue().encode()

    return make


def arrow_table() -> bytes:
    sink = io.BytesIO()
    arrow_csv.write_csv(pyarrow.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def parquet_file() -> bytes:
    return written(pyarrow.Table.from_pylist(ROWS))


def written(table: pyarrow.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, row_group_size=1)
    return sink.getvalue()


def doubled() -> pyarrow.Table:
    """A table with two columns of one name."""
    return pyarrow.Table.from_arrays([pyarrow.array(["A"]), pyarrow.array(["B"])], ["label"] * 2)


FORMATS = {
    "jsonl": jsonl,
    "crlf jsonl": crlf_jsonl,
    "array": array,
    "csv": table(","),
    "tsv": table("\t"),
    "semicolons": table(";"),
    "csv of arrow": arrow_table,
    "parquet": parquet_file,
}


def zstd(content: bytes) -> bytes:
    compressed: bytes = pyarrow.compress(content, "zstd", asbytes=True)
    return compressed


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: content,
    "gzip": gzip.compress,
    "zstd": zstd,
}


def fields_of(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(path)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_is_read_by_its_content(tmp_path: Path, format: str, compression: str) -> None:
    # The name says nothing.
    path = tmp_path / "data"
    path.write_bytes(COMPRESSIONS[compression](FORMATS[format]()))
    assert fields_of(path) == ROWS


@pytest.mark.parametrize("format", ["jsonl", "array", "csv", "tsv"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path: Path, format: str, encoding: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(FORMATS[format]().decode().encode(encoding))
    assert fields_of(path) == ROWS


@pytest.mark.parametrize(
    "text", ["question\nWhat\u2019s caf\u00e9?\n", '[\n{"question": "caf\u00e9"}\n]']
)
def test_utf_8_that_is_read_in_another_encoding_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequestError, match="pairs is UTF-8: leave --encoding cp1252 out"):
        list(read_rows(file, "cp1252"))


def test_a_named_encoding_is_that_of_text_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes("Frage;Antwort\r\nWei\u00df?;\u20ac\r\n".encode("cp1252"))
    (row,) = read_rows(path, "cp1252")
    assert (row.fields, row.delimiter) == ({"Frage": "Wei\u00df?", "Antwort": "\u20ac"}, ";")
    for content in (FORMATS["parquet"](), FORMATS["csv"]().decode().encode("utf-8-sig")):
        path.write_bytes(content)
        assert [row.fields for row in read_rows(path, "cp1252")] == ROWS
    path.write_bytes(b"a,b\n\xe4,2\n")
    with pytest.raises(InvalidRequestError, match=r"read as ASCII .*name another encoding"):
        list(read_rows(path, "ascii"))


@pytest.mark.parametrize("encoding", ["undefined", "utf-16"])
def test_an_encoding_that_cannot_begin_is_refused_in_a_sentence(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(
        InvalidRequestError, match=f"cannot be read as {encoding.upper()} .* name another"
    ):
        list(read_rows(path, encoding))


@pytest.mark.parametrize("format", FORMATS)
def test_standard_input_is_read_like_a_file(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(FORMATS[format]())))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert fields_of(STDIN) == ROWS


def test_values_keep_their_types_and_empty_ones_their_column(tmp_path: Path) -> None:
    rows = [{"n": 1, "list": [{"a": 1.5}], "text": "x"}, {"n": None, "list": [], "text": ""}]
    path = tmp_path / "x"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert fields_of(path) == rows
    path.write_text("n,text\n1,\n,x\n")
    assert fields_of(path) == [{"n": "1", "text": None}, {"n": None, "text": "x"}]
    path.write_text('{"n": null, "text": ""}\n')
    assert fields_of(path) == [{"n": None, "text": ""}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"%PDF-1.7 x", r"is a PDF: save its table as CSV"),
        (b"\xd0\xcf\x11\xe0 x", r"old format, or one with a password"),
        (b"<table><tr>", "is a web page or XML, .* save it as .xlsx"),
        (
            b"Results of March,,,\nquestion,a,b,label\n",
            r"the header \(Results of March\) has blank",
        ),
        (b"PK\x03\x04 and no more", "is a zip archive, and not a workbook"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=message):
        fields_of(path)


def test_a_sheet_may_have_blank_rows_and_a_title_must_not_be_above_the_header(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x"
    book = openpyxl.Workbook()
    for cells in (["a", " b ", None], [], [1, None], [None, "x"], [" ", None]):
        book.active.append(cells)
    book.save(path)
    assert [(row.place, row.fields) for row in read_rows(path)] == [
        (f"{path}, row 3", {"a": 1, "b": None}),
        (f"{path}, row 4", {"a": None, "b": "x"}),
    ]
    book.active.insert_rows(1)
    book.active["A1"] = "Our pairs"
    book.create_sheet("Other")
    book.save(path)
    told = "row 2 of 'Sheet', the only sheet read: a cell stands right .*Our pairs.: delete"
    with pytest.raises(InvalidRequestError, match=told):
        fields_of(path)


def test_a_place_is_a_line_or_a_row(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('\n{"a": 1}\n\n{"a": 2}\n')
    assert [row.place for row in read_rows(path)] == [f"{path}, line 2", f"{path}, line 4"]
    path.write_text('a,b\n"two\nlines",1\n3,4\n')
    assert list(read_rows(path)) == [
        FileRow(place=f"{path}, line 2", fields={"a": "two\nlines", "b": "1"}, delimiter=","),
        FileRow(place=f"{path}, line 4", fields={"a": "3", "b": "4"}, delimiter=","),
    ]
    path.write_text('[{"a": 1}, {"a": 2}]')
    assert [row.place for row in read_rows(path)] == [f"{path}, row 1", f"{path}, row 2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"[]", "is an empty array"),
        (b'{"a": 1}\n[1]\n', "line 2: this is not a JSON object"),
        (b'{"a": 1}\nnot json\n', "line 2: this is not JSON (Expecting value, column 1)"),
        (b'{"a": 1\n', "line 1: this is not JSON"),
        (b'[{"a": 1}, 3]', "row 2: this is not a JSON object"),
        (b'{"a": 1}\n{"label": "A", "lab\\u0065l": "B"}\n', "line 2: the column 'label' occurs"),
        (b'{"a": 1, "a": 1}\n', "line 1: the column 'a' occurs twice"),
        (b'{"a": 1,\n"b": 2}', "line 1: this is not JSON"),
        (b'{"a": {"x": 1, "x": 2}}', "line 1: the column 'x' occurs twice"),
        (b'[{"a": 1}, {"a": 1, "a": 2}]', "the column 'a' occurs twice"),
        (b'[{"a": 1}', "this is not JSON"),
        (b"a,b\n1,2,3\n", "line 2: 3 cells, but the header has 2"),
        (b'a,b\n"1,2\n', "this is not CSV"),
        (b"a,b,a\n1,2,3\n", "the column 'a' occurs twice"),
        (b"question,b\n\xe4,2\n", "cannot be read as UTF-8 ('utf-8' codec can't decode byte 0xe4"),
        (
            b"question,b\n\xe4,2\n",
            "name another encoding, such as --encoding cp1252 for CSV from Excel",
        ),
        (gzip.compress(jsonl(), mtime=0)[:-20], "cannot be read"),
        (zstd(jsonl())[:-20], "cannot be read"),
        (written(doubled()), "the column 'label' occurs twice"),
        (written(pyarrow.table({"row": doubled().to_struct_array()})), "'row.label' occurs twice"),
        (parquet_file()[:-20], "looks like Parquet but cannot be read"),
        (b"[" * 100_000, "this is not JSON"),
    ],
)
def test_a_file_that_is_not_what_it_seems_is_named(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError) as caught:
        fields_of(path)
    assert message in caught.value.detail
    assert str(path) in caught.value.detail


def test_folders_and_patterns_are_expanded_in_order(tmp_path: Path) -> None:
    names = ["b/2.csv.gz", "a.jsonl", "b/1.parquet", "c.json.zst", ".hidden.json", "notes.md"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [path.relative_to(tmp_path).as_posix() for path in files_of([tmp_path])]
    assert found == ["a.jsonl", "b/1.parquet", "b/2.csv.gz", "c.json.zst"]
    assert files_of([tmp_path / "b" / "*.csv*"]) == [tmp_path / "b" / "2.csv.gz"]
    # A file that is named is read whatever its ending.
    assert files_of([tmp_path / "notes.md", STDIN]) == [tmp_path / "notes.md", STDIN]
    drawn = tmp_path / "b" / "out.jsonl.audits.jsonl"
    drawn.write_text("")
    assert drawn not in files_of([tmp_path])
    # A file that is named is read.
    assert files_of([drawn]) == [drawn]
    refused = {"*.x": "no file matches", "e": "has no file", "1,label=Better": "in quotes"}
    for given, message in refused.items():
        (tmp_path / "e").mkdir(exist_ok=True)
        with pytest.raises(InvalidRequestError, match=message):
            files_of([tmp_path / given])
