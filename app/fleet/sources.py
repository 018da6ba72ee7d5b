"""The input files of a bulk run, as JSONL or Parquet, which can be read from any row."""

import hashlib
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from app.core.errors import RequestError, ScopeJudgeError, StartupError
from app.files.reading import files_of, is_parquet, is_plain_jsonl, read_rows
from app.files.shapes import shape_for, shape_of
from app.files.writing import json_line


class Source(NamedTuple):
    """One file of the input.

    Args:
        name: Name in the results: the path below the given folder, or the file's name.
        path: Absolute path of JSONL or Parquet, the same on every machine.
        shape: Text from which `app.files.shapes.shape_of` makes the shape of the rows.
    """

    name: str
    path: Path
    shape: str


def sources_of(inputs: Sequence[Path], folder: Path, shape: str | None = None) -> list[Source]:
    """Finds the files of the input; writes those of another format as JSONL into a folder.

    Args:
        inputs: Files, folders and patterns.
        folder: Folder that all machines share; it is made if a file is written.
        shape: Shape of all files; None to recognise it for each file.

    Raises:
        StartupError: A file cannot be read or written, its first row has no comparison, or two
            files have one name.
    """
    try:
        found = [
            _source(name, path, folder, shape) for given in inputs for name, path in _files(given)
        ]
    except OSError as exc:
        raise StartupError(f"{exc.filename} cannot be read: {exc.strerror}") from exc
    except RequestError as exc:
        raise StartupError(exc.detail) from exc
    if len({source.name for source in found}) < len(found):
        raise StartupError(
            "two input files have the same name, so the results could not tell them apart: rename "
            "one"
        )
    return found


def _files(given: Path) -> Iterable[tuple[str, Path]]:
    """Yields names and absolute paths; the files of a folder are sorted by path."""
    for path in files_of([given]):
        is_below = given.is_dir()
        yield path.relative_to(given).as_posix() if is_below else path.name, path.absolute()


def _source(name: str, path: Path, folder: Path, shape: str | None) -> Source:
    first = next(read_rows(path), None)
    if first is None:
        raise StartupError(f"{path} has no rows")
    try:
        found = shape_of(shape) if shape is not None else shape_for(first.fields)
        found.fields(first.fields)
    except ScopeJudgeError as exc:
        # The other rows will hardly be better, and a wrong map would fail all of them.
        raise StartupError(f"{first.place}: {exc.detail}") from exc
    if is_parquet(path) or is_plain_jsonl(path):
        return Source(name, path, shape or found.name)
    return Source(name, _as_jsonl(path, folder), shape or found.name)


def _as_jsonl(path: Path, folder: Path) -> Path:
    """Writes the rows of a file as JSONL; equal rows make the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{uuid.uuid4().hex}.new"
    digest = hashlib.sha256()
    try:
        with new.open("wb") as file:
            for row in read_rows(path):
                line = f"{json_line(row.fields)}\n".encode()
                digest.update(line)
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        return new.rename(folder / f"{digest.hexdigest()}.jsonl")
    except OSError as exc:
        raise StartupError(f"{new} cannot be written: {exc.strerror}") from exc
    finally:
        # Do not leave a partial file on a full disk.
        new.unlink(missing_ok=True)
