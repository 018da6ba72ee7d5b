"""Moves calibration sets: scores into a running service, and whole sets from and to files.

The file of an exported set has a line that describes the set, and a line an example.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from app.cli.console import CommandError, say
from app.cli.running.rows import check_output, write_all
from app.cli.service_client import ServiceClient, read, written
from app.core.errors import InvalidRequestError
from app.files.reading import FileRow, read_rows
from app.files.writing import format_of

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import CalibrationReport

# Room for the fields around the examples.
_RESERVED_BYTES = 1000
# The first field of the first line, with the version of the format.
MARK = "scope_judge_set"
_FORMAT = 3
_DESCRIBED = (
    "name",
    "version",
    "judge",
    "fingerprint",
    "n",
    "release",
    "runtimes",
)
_PAGE = 10_000
_ATTEMPTS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """The outcome of an upload.

    Args:
        answer: The last answer of the service: the set with its thresholds.
        counts: Numbers of added, updated, tied and removed examples.
    """

    answer: "CalibrationReport"
    counts: Counter[str]


def set_path(name: str, below: str = "") -> str:
    """The path of a calibration set, or of a route below it."""
    return f"/calibrations/{quote(name, safe='', errors='replace')}{below}"


def requests_of(
    service: ServiceClient,
    examples: Sequence[Mapping[str, Any]],
    *,
    judge: str,
    fingerprint: str,
    runtimes: Sequence[str] = (),
    replace: bool = False,
    even_if_infeasible: bool = False,
) -> list[dict[str, Any]]:
    """The bodies that add judged examples to a set: one, or a few if they do not fit into one.

    Args:
        service: The service.
        examples: Judged examples and ties, as POST /calibrations/{name}/examples takes them.
        judge: Name of the judge that scored them.
        fingerprint: Fingerprint of that judge.
        runtimes: The runtimes that computed the scores, as far as they are known.
        replace: Remove all other examples of the set.
        even_if_infeasible: Replace them even if an alpha in use gets no more verdicts.

    Raises:
        CommandError: The examples of a replacement do not fit into one request.
    """
    common: dict[str, Any] = {"judge": judge, "fingerprint": fingerprint}
    if runtimes:
        common["runtimes"] = list(runtimes)
    if replace:
        common |= {"replace": True, "even_if_infeasible": even_if_infeasible}
    parts = list(_parts(examples, service.max_body_bytes - _RESERVED_BYTES))
    if len(parts) > 1:
        too_many = (
            f"{len(examples)} examples are more than one request may hold "
            f"({service.max_body_bytes} bytes)"
        )
        if replace:
            raise CommandError(
                f"{too_many}, and a set is replaced in one request: raise SCOPE_MAX_BODY_BYTES of "
                "the service, or calibrate a set with another name"
            )
        say(f"{too_many}: they become {len(parts)} versions")
    return [{**common, "examples": part} for part in parts]


def preview_scores(
    service: ServiceClient, name: str, bodies: Sequence[dict[str, Any]]
) -> "CalibrationReport | None":
    """Asks for the effects of `upload_scores`; None if it takes several requests.

    Raises:
        CommandError: The service does not answer for too long, or answers with an error.
    """
    from scope_judge import CalibrationReport

    if len(bodies) > 1:
        return None
    body = {**bodies[0], "dry_run": True}
    return read(CalibrationReport, service.post(set_path(name, "/examples"), body))


def upload_scores(service: ServiceClient, name: str, bodies: Sequence[dict[str, Any]]) -> Upload:
    """Adds judged examples to a set, a version for each body of `requests_of`.

    A replacement is sent once: sent again, it would remove what others have added meanwhile.

    Raises:
        CommandError: The service does not answer for too long, or answers with an error.
    """
    from scope_judge import CalibrationReport

    counts: Counter[str] = Counter()
    for body in bodies:
        send = service.change_once if body.get("replace") else service.post
        answer = read(CalibrationReport, send(set_path(name, "/examples"), body))
        counts.update(
            added=answer.added, updated=answer.updated, ties=answer.ties, removed=answer.removed
        )
    return Upload(answer=answer, counts=counts)


def _parts(
    examples: Sequence[Mapping[str, Any]], most_bytes: int
) -> Iterator[Sequence[Mapping[str, Any]]]:
    start, size = 0, 0
    for end, example in enumerate(examples):
        # One more byte for the comma.
        needed = len(written(example)) + 1
        if size + needed > most_bytes and end > start:
            yield examples[start:end]
            start, size = end, 0
        size += needed
    yield examples[start:]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedSet:
    """A calibration set that was read from a file.

    Args:
        name: Name of the set.
        judge: Name of the judge that scored the examples.
        fingerprint: Fingerprint of that judge.
        release: Release of scope-judge that made the set.
        runtimes: The runtimes that computed the scores, as far as they are known.
        examples: The examples, as POST /calibrations/{name}/examples takes them.
    """

    name: str
    judge: str
    fingerprint: str
    release: str
    runtimes: Sequence[str]
    examples: Sequence[dict[str, Any]]


def set_rows(service: ServiceClient, name: str) -> list[dict[str, Any]]:
    """Reads one version of a set: the row that describes it, then its examples.

    Raises:
        CommandError: The set cannot be read, or changes faster than it is read.
    """
    for _ in range(_ATTEMPTS):
        rows = _rows_of_one_version(service, name)
        if rows is not None:
            return rows
    raise CommandError(
        f"{name} changes faster than it can be read: try again when nobody is calibrating"
    )


def _rows_of_one_version(service: ServiceClient, name: str) -> list[dict[str, Any]] | None:
    """Reads all pages of a set; None if it changed meanwhile."""
    from scope_judge.records import ExamplePage

    path = set_path(name, "/examples")
    page = service.get(path, limit=_PAGE)
    read(ExamplePage, page)
    described = {field: page[field] for field in _DESCRIBED}
    rows = [{MARK: _FORMAT, **described}, *page["examples"]]
    while len(rows) <= described["n"] and page["examples"]:
        page = service.get(path, limit=_PAGE, after=page["examples"][-1]["digest"])
        read(ExamplePage, page)
        if page["version"] != described["version"]:
            return None
        rows += page["examples"]
    return rows


def write_set(rows: Sequence[dict[str, Any]], out: Path | None, *, overwrite: bool) -> None:
    """Writes the rows of a set to a file, or to stdout.

    Raises:
        InvalidRequestError: The name of the file asks for another format than JSONL.
        CommandError: The file exists or cannot be written.
    """
    if out is not None and format_of(out) != "jsonl":
        raise InvalidRequestError(f"--out {out}: the name must end in .jsonl, also .gz or .zst")
    check_output(out, (), overwrite=overwrite)
    write_all(out, rows)


def read_set(file: Path) -> ExportedSet:
    """Reads the file of an exported set.

    Raises:
        InvalidRequestError: The file cannot be read, is not an exported set, or is incomplete.
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
        release=described["release"],
        runtimes=described["runtimes"],
        examples=[row.fields for row in rows],
    )


def _described(first: FileRow) -> dict[str, Any]:
    if MARK not in first.fields:
        raise InvalidRequestError(
            f"{first.place}: this is not an exported set. `scope-judge sets export` writes one; "
            "`scope-judge calibrate` reads labeled pairs"
        )
    if first.fields[MARK] != _FORMAT or any(field not in first.fields for field in _DESCRIBED):
        raise InvalidRequestError(
            f"{first.place}: this release reads sets of format {_FORMAT}, and this set has another "
            "one: use the release that wrote it, or export the set again with this release"
        )
    return first.fields
