"""A small file that would fill the memory is refused, in every format and by both readers."""

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from app.core.errors import InvalidRequestError
from app.files.growth import LONGEST_LINE, lines_of
from app.files.reading import read_rows
from app.files.table import read_table
from app.files.writing import replace_file
from tests.patience import PATIENCE_S

# Long rows: a reader needs half a minute for the short ones of a bomb.
ROW = b'{"question": "%s", "response_a": "a", "response_b": "b"}\n' % (b"q" * 1000)
# Far more than a refusal needs, far less than a bomb would take.
_MOST_BYTES = 3 * 2**30


def _repeated(text: str, rows: int) -> pyarrow.Array:
    indices = pyarrow.array([0] * rows, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([text]))


def _dictionary(path: Path) -> None:
    text = _repeated("a" * 10**7, 1000)
    table = pyarrow.table({"question": text, "response_a": text, "response_b": text})
    parquet.write_table(table, path, compression="zstd")


def _nested_dictionary(path: Path) -> None:
    lists = pyarrow.array([["a" * 10**6] * 40] * 4)
    parquet.write_table(pyarrow.table({"question": lists}), path, compression="zstd")


def _run_length(path: Path) -> None:
    ones = pyarrow.array([1], pyarrow.int64()).take(pyarrow.array([0] * 10**6))
    table = pyarrow.table({"question": pyarrow.chunked_array([ones] * 100)})
    parquet.write_table(table, path, compression="zstd", row_group_size=10**8)


def _packed(begin: bytes, block: bytes, times: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(begin)
            for _ in range(times):
                file.write(block)

    return make


def _zstd_rows(path: Path) -> None:
    path.write_bytes(pyarrow.compress(ROW * (2**27 // len(ROW)), "zstd", asbytes=True))


BOMBS: dict[str, Callable[[Path], None]] = {
    "bomb.parquet": _dictionary,
    "nested.parquet": _nested_dictionary,
    "runs.parquet": _run_length,
    "rows.jsonl.gz": _packed(b"", ROW * 1000, 128),
    "line.jsonl.gz": _packed(b'{"question": "', b"a" * 2**20, 100),
    "array.json.gz": _packed(b"[", b"1," * 2**19, 100),
    "cell.csv.gz": _packed(b'question,response_a\n"', b"a" * 2**20, 100),
    "rows.jsonl.zst": _zstd_rows,
}
_READ = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
from app.core.errors import InvalidRequestError
from app.files.reading import read_rows
from app.files.table import read_table
for read in (lambda: list(read_rows(Path(sys.argv[1]))),
             lambda: read_table(Path(sys.argv[1]), {"question": None})):
    try:
        read()
    except InvalidRequestError as exc:
        print(exc.detail)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_fills_the_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    BOMBS[name](path)
    assert path.stat().st_size < 2**25
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path), str(_MOST_BYTES)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 2, told
    assert all(str(path) in line and "times its size" in line for line in told), told


def test_a_line_has_a_limit() -> None:
    with pytest.raises(InvalidRequestError, match="line 2: the line has more than"):
        list(lines_of(io.StringIO("a\n" + "b" * (LONGEST_LINE + 1)), "x.csv"))
    assert list(lines_of(io.StringIO("a\nb"), "x.csv")) == ["a\n", "b"]


def test_one_long_prompt_with_many_answers_is_read(tmp_path: Path) -> None:
    rows = [
        {"question": "q" * 2000, "response_a": f"{i}", "turns": [{"a": "x"}]} for i in range(3000)
    ]
    for ending in ("parquet", "jsonl.gz", "csv.zst"):
        path = tmp_path / f"x.{ending}"
        replace_file(path, rows)
        assert sum(1 for _ in read_rows(path)) == 3000
    path = tmp_path / "x.parquet"
    assert [row.fields for row in read_rows(path)] == rows
    assert read_table(path, {"question": None}).column("question").to_pylist()[0] == "q" * 2000
