"""Files as pandas, datasets and Arrow write them: every shape in every format reads alike."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from datasets import Dataset
from pyarrow import parquet

from app.core.errors import InvalidRequestError
from app.files.reading import read_rows
from tests.unit.files.test_shapes import CASES, shape_of

Rows = list[dict[str, Any]]


def pandas_csv(rows: Rows, path: Path, **options: Any) -> None:
    pandas.DataFrame(rows).to_csv(path, index=False, **options)


def pandas_json(rows: Rows, path: Path, **options: Any) -> None:
    pandas.DataFrame(rows).to_json(path, orient="records", **options)


def arrow_stream(rows: Rows, path: Path) -> None:
    with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def of_datasets(method: str) -> Callable[[Rows, Path], None]:
    def write(rows: Rows, path: Path) -> None:
        getattr(Dataset.from_list(rows), method)(str(path))

    return write


# Writer -> how it is called on rows and a path.
WRITERS: Mapping[str, Callable[[Rows, Path], None]] = {
    "pandas CSV": pandas_csv,
    "pandas CSV for Excel": lambda rows, path: pandas_csv(rows, path, encoding="utf-8-sig"),
    "pandas CSV, gzip": lambda rows, path: pandas_csv(rows, path, compression="gzip"),
    "pandas TSV": lambda rows, path: pandas_csv(rows, path, sep="\t"),
    "pandas JSON": pandas_json,
    "pandas JSON, indented": lambda rows, path: pandas_json(rows, path, indent=2),
    "pandas JSONL": lambda rows, path: pandas_json(rows, path, lines=True),
    "pandas JSONL, gzip": lambda rows, path: pandas_json(
        rows, path, lines=True, compression="gzip"
    ),
    "pandas Parquet": lambda rows, path: pandas.DataFrame(rows).to_parquet(path),
    "datasets JSONL": of_datasets("to_json"),
    "datasets Parquet": of_datasets("to_parquet"),
    "arrow Parquet": lambda rows, path: parquet.write_table(pyarrow.Table.from_pylist(rows), path),
    "arrow JSONL, zstd": arrow_stream,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_a_library_has_the_comparisons_that_were_written(
    writer: str, tmp_path: Path
) -> None:
    for case, (row, wanted) in CASES.items():
        # A column of Arrow has one type.
        if _mixes_types(row) and writer.startswith(("pandas Parquet", "datasets", "arrow Parquet")):
            continue
        # pandas writes lists into CSV as Python prints them.
        if writer.startswith(("pandas CSV", "pandas TSV")) and not _has_texts_only(row):
            continue
        path = tmp_path / case
        WRITERS[writer]([row, row], path)
        rows = list(read_rows(path))
        assert len(rows) == 2, case
        is_labeled = "label" in wanted
        expected = {key: value for key, value in wanted.items() if key != "label"}
        for read in rows:
            shape = shape_of(read.fields)
            assert shape.fields(read.fields) == expected, case
            assert not is_labeled or shape.label_in(read.fields) == wanted["label"], case


def _has_texts_only(row: Mapping[str, Any]) -> bool:
    return not any(isinstance(value, list | dict) for value in row.values())


def _mixes_types(row: Mapping[str, Any]) -> bool:
    """Whether a column of the row mixes texts and lists, which Arrow cannot hold."""
    contents = [
        m["content"] for m in row.get("question", ()) if isinstance(m, dict) and "content" in m
    ]
    return len({type(content) for content in contents}) > 1


def test_messages_that_python_has_printed_are_refused(tmp_path: Path) -> None:
    # `DataFrame.to_csv` writes the lists of a Parquet file without commas.
    talk = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hey."}]
    path = tmp_path / "data.csv"
    for messages in (talk, np.array(talk)):
        pandas.DataFrame({"chosen": [messages], "rejected": [messages]}).to_csv(path, index=False)
        with pytest.raises(InvalidRequestError, match=r"line 2: chosen has messages .* as JSONL"):
            list(read_rows(path))


@pytest.mark.parametrize(
    "text", ["[1, 2, 3]", '["a"]', '{"value": 3}', "[{}]", "{'role' is", '{"tools": []}']
)
def test_a_text_that_only_looks_like_json_stays_a_text(text: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    pandas.DataFrame({"response_a": [text]}).to_csv(path, index=False)
    assert [row.fields for row in read_rows(path)] == [{"response_a": text}]
