"""JSONL that the commands read and write: one JSON object in each line."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app.cli.console import failure

T = TypeVar("T")


def read_jsonl(file: Path) -> list[dict[str, Any]]:
    """Reads every object of a file, or of stdin if the file is "-"; empty lines are skipped.

    Raises:
        typer.Exit: The file cannot be read, or a line is not a JSON object.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise failure(f"{file} cannot be read: {exc}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise failure(f"{file}, line {number}: this is not a JSON object")
        rows.append(row)
    return rows


def batches(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yields the rows in lists of at most `size`, in order."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
