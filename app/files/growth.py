"""Limits on what a small file may become in memory: decompression bombs are refused.

Text compresses by a factor of ten, and with one long prompt in each row by some dozens.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from app.core.errors import InvalidRequestError
from app.files.columns import check_columns

# A line of JSONL or CSV, and JSON that has to be parsed as a whole.
LONGEST_LINE = 2**27
_LARGEST_JSON = 2**29
# A file may become so many times its size, and any file may become so many bytes.
_MOST_GROWTH = 100
_FREE_BYTES = 2**26
# The least memory of one value of a column.
_VALUE_BYTES = 8


class Unpacked(io.RawIOBase):
    """A decompressed stream that ends with an error if it grows as no text does.

    Args:
        packed: The compressed bytes.
        name: Name of the file, for the message.

    Attributes:
        source: The compressed bytes, to be given to the decompressor.
        stream: The decompressor.
    """

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self.source = _Counted(packed)
        self.stream: Any = None
        self._name = name
        self._bytes = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads decompressed bytes.

        Raises:
            InvalidRequestError: The stream has grown too much.
        """
        content = self.stream.read(len(buffer))
        buffer[: len(content)] = content
        self._bytes += len(content)
        check_growth(self._bytes, size=self.source.bytes, name=self._name)
        return len(content)


class _Counted(io.RawIOBase):
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self.bytes += len(content)
        return len(content)


def check_growth(found: int, *, size: int, name: str) -> None:
    """Refuses a file that has become larger than any text does.

    Args:
        found: Bytes in memory.
        size: Bytes of the file.
        name: Name of the file, for the message.

    Raises:
        InvalidRequestError: It has grown too much.
    """
    if found > max(_FREE_BYTES, _MOST_GROWTH * size):
        raise InvalidRequestError(
            f"{name} becomes more than {_MOST_GROWTH} times its size of {size} bytes when it is "
            "read, as a decompression bomb does; give the data uncompressed if they are right"
        )


def lines_of(text: IO[str], name: str) -> Iterator[str]:
    """The lines of a text.

    Raises:
        InvalidRequestError: A line is longer than any row.
    """
    number = 0
    while line := text.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InvalidRequestError(
                f"{name}, line {number}: the line has more than {LONGEST_LINE} characters"
            )
        yield line


def rest_of(text: IO[str], name: str) -> str:
    """The rest of a text that is one JSON value.

    Raises:
        InvalidRequestError: The text is too long to be parsed at once.
    """
    rest = text.read(_LARGEST_JSON + 1)
    if len(rest) > _LARGEST_JSON:
        raise InvalidRequestError(
            f"{name}: JSON with more than {_LARGEST_JSON} characters must be JSONL"
        )
    return rest


def open_parquet(source: Any, *, size: int, name: str) -> Any:
    """A Parquet file whose columns of texts stay in their dictionaries, and can be measured there.

    Args:
        source: Path or seekable stream.
        size: Bytes of the file.
        name: Name of the file, for the message.

    Raises:
        InvalidRequestError: The file has more values than its size allows, or a column twice.
    """
    from pyarrow import parquet

    metadata = parquet.read_metadata(source)
    values = sum(
        metadata.row_group(group).column(column).num_values
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    check_growth(values * _VALUE_BYTES, size=size, name=name)
    leaves = [metadata.schema.column(column) for column in range(metadata.num_columns)]
    # A column of objects is several leaves.
    check_columns(metadata.schema.to_arrow_schema().names, name)
    check_columns([leaf.path for leaf in leaves], name)
    # Arrow cannot keep the dictionaries of texts within lists.
    texts = [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY" and leaf.path == leaf.name
    ]
    if not isinstance(source, Path):
        source.seek(0)
    return parquet.ParquetFile(source, read_dictionary=texts)


def bytes_of(array: Any) -> int:
    """The bytes of an array of Arrow once each value has its own copy."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        if not (types.is_string(array.type.value_type) or types.is_binary(array.type.value_type)):
            return int(array.nbytes)
        lengths = compute.binary_length(array.dictionary)
        return int(compute.sum(compute.take(lengths, array.indices)).as_py() or 0)
    if types.is_map(array.type):
        return bytes_of(array.keys) + bytes_of(array.items)
    if types.is_list(array.type) or types.is_large_list(array.type):
        return bytes_of(array.flatten())
    if types.is_struct(array.type):
        return sum(bytes_of(field) for field in array.flatten())
    return int(array.nbytes)
