"""The file of an exported calibration set: a line that describes the set, and a line an example."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from app.cli.console import failure
from app.cli.score_upload import set_path
from app.cli.service_client import ServiceClient
from app.core.errors import InvalidRequestError
from app.files.reading import Row, read_rows
from app.files.writing import format_of, json_line, replace_file

# The first field of the first line, with the version of the format.
MARK = "scope_judge_set"
# The second version has questions, pairs without labels, and a rule for pairs of one question. A
# set without these is written in the first version, which older releases can read.
_FIRST, _SECOND = 1, 2
_DESCRIBED = ("name", "version", "judge", "fingerprint", "label_noise", "n")
_PAGE = 10_000
_ATTEMPTS = 10


class ExportedSet(NamedTuple):
    """A calibration set that was read from a file.

    Args:
        name: Name of the set.
        judge: Name of the judge that scored the examples.
        fingerprint: Fingerprint of that judge.
        label_noise: Label noise of the set.
        clusters: How "pac" counts pairs of one question; None in exports of older releases.
        examples: The examples, as POST /calibrations/{name}/examples takes them.
    """

    name: str
    judge: str
    fingerprint: str
    label_noise: float
    clusters: str | None
    examples: Sequence[dict[str, Any]]


def set_rows(service: ServiceClient, name: str) -> list[dict[str, Any]]:
    """Reads one version of a set: the row that describes it, then its examples.

    Raises:
        typer.Exit: The set cannot be read, or changes faster than it is read.
    """
    for _ in range(_ATTEMPTS):
        rows = _rows_of_one_version(service, name)
        if rows is not None:
            return rows
    raise failure(f"{name} changes faster than it can be read: try again when nobody calibrates")


def _rows_of_one_version(service: ServiceClient, name: str) -> list[dict[str, Any]] | None:
    """Reads all pages of a set; None if it changed meanwhile."""
    path = set_path(name, "/examples")
    page = service.get(path, limit=_PAGE)
    described = {field: page[field] for field in _DESCRIBED}
    rows = [{MARK: _FIRST, **described}, *page["examples"]]
    while len(rows) <= described["n"] and page["examples"]:
        page = service.get(path, limit=_PAGE, after=page["examples"][-1]["digest"])
        if page["version"] != described["version"]:
            return None
        rows += page["examples"]
    clusters = page.get("clusters", "one")
    for row in rows[1:]:
        if row.get("question") is None:
            row.pop("question", None)
    if clusters != "one" or any(_is_new(row) for row in rows[1:]):
        rows[0] = {**rows[0], MARK: _SECOND, "clusters": clusters}
    return rows


def _is_new(row: dict[str, Any]) -> bool:
    """Whether older releases do not know this kind of example."""
    return "question" in row or row["label"] not in ("A", "B")


def write_set(rows: Sequence[dict[str, Any]], out: Path | None, *, overwrite: bool) -> None:
    """Writes the rows of a set to a file, or to stdout.

    Raises:
        InvalidRequestError: The name of the file asks for another format than JSONL.
        typer.Exit: The file exists or cannot be written.
    """
    if out is None:
        for row in rows:
            print(json_line(row))
        return
    if format_of(out) != "jsonl":
        raise InvalidRequestError(f"--out {out}: the name must end in .jsonl, also .gz or .zst")
    if out.exists() and not overwrite:
        raise failure(f"{out} is there already: name another --out, or replace it with --overwrite")
    try:
        replace_file(out, rows)
    except OSError as exc:
        raise failure(f"{out} cannot be written: {exc.strerror}") from None


def read_set(file: Path) -> ExportedSet:
    """Reads the file of an exported set.

    Raises:
        InvalidRequestError: The file cannot be read, is no exported set, or is not complete.
    """
    first, *rows = read_rows(file)
    described = _described(first)
    if len(rows) != described["n"]:
        raise InvalidRequestError(
            f"{file} has {len(rows)} examples and was written with {described['n']}: it was cut "
            "off or changed; export the set again"
        )
    return ExportedSet(
        name=described["name"],
        judge=described["judge"],
        fingerprint=str(described["fingerprint"]),
        label_noise=described["label_noise"],
        clusters=described.get("clusters"),
        examples=[row.fields for row in rows],
    )


def _described(first: Row) -> dict[str, Any]:
    if MARK not in first.fields or any(field not in first.fields for field in _DESCRIBED):
        raise InvalidRequestError(
            f"{first.place}: this is no exported set. `scope-judge sets export` writes one, and "
            "labelled pairs are for `scope-judge calibrate`"
        )
    if first.fields[MARK] not in (_FIRST, _SECOND):
        raise InvalidRequestError(f"{first.place}: a later release of scope-judge wrote this set")
    return first.fields
