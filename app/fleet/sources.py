"""The input files of a bulk run, as JSONL, which can be read from any line."""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import RequestError, ScopeJudgeError, StartupError
from app.files.reading import files_of, is_plain_jsonl, read_rows
from app.files.replacing import UNFINISHED, replacing
from app.files.shapes import shape_of
from app.files.suggestion import shape_for
from app.files.writing import json_line


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file of the input.

    Args:
        name: Name in the results: the path below the given folder, or the file's name.
        path: Absolute path of JSONL, the same on every machine.
        shape: Text from which `app.files.shapes.shape_of` makes the shape of the rows.
    """

    name: str
    path: Path
    shape: str


def sources_of(inputs: Sequence[Path], folder: Path, shape: str | None = None) -> list[InputFile]:
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
        sources = [
            _source(name, path, folder, shape) for entry in inputs for name, path in _files(entry)
        ]
    except OSError as exc:
        raise StartupError(f"{exc.filename} cannot be read: {exc.strerror}") from exc
    except RequestError as exc:
        raise StartupError(exc.detail) from exc
    if len({source.name for source in sources}) < len(sources):
        raise StartupError(
            "two input files have the same name, so the results could not tell them apart: rename "
            "one"
        )
    return sources


def _files(entry: Path) -> Iterable[tuple[str, Path]]:
    """Yields names and absolute paths; the files of a folder are sorted by path."""
    for path in files_of([entry]):
        is_below = entry.is_dir()
        yield path.relative_to(entry).as_posix() if is_below else path.name, path.absolute()


def _source(name: str, path: Path, folder: Path, shape: str | None) -> InputFile:
    first = next(read_rows(path), None)
    if first is None:
        raise StartupError(f"{path} has no rows")
    try:
        row_shape = shape_of(shape) if shape is not None else shape_for(first.fields)
        row_shape.fields(first.fields)
    except ScopeJudgeError as exc:
        # The other rows will hardly be better, and a wrong map would fail all of them.
        raise StartupError(f"{first.place}: {exc.detail}") from exc
    if is_plain_jsonl(path):
        return InputFile(name=name, path=path, shape=shape or row_shape.name)
    return InputFile(name=name, path=_as_jsonl(path, folder), shape=shape or row_shape.name)


def _as_jsonl(path: Path, folder: Path) -> Path:
    """Writes the rows of a file as JSONL; equal rows make the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{uuid.uuid4().hex}{UNFINISHED}"
    digest = hashlib.sha256()
    try:
        with replacing(new) as file:
            for row in read_rows(path):
                line = f"{json_line(row.fields)}\n".encode()
                digest.update(line)
                file.write(line)
        return new.rename(folder / f"{digest.hexdigest()}.jsonl")
    except OSError as exc:
        raise StartupError(f"{new} cannot be written: {exc.strerror}") from exc
