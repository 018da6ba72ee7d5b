"""`scope-judge sets`: lists, shows, restores, deletes and moves calibration sets of a service."""

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.assessment import print_detail
from app.cli.connection import DEFAULT_URL, Url, changing, connected
from app.cli.console import CommandError, ask, print_cells, say, stdout
from app.cli.effects import Yes, show_change, show_deletion
from app.cli.running.rows import check_output, write_all
from app.files.reading import read_rows
from app.files.writing import format_of

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge.records import (
        Calibration,
        CalibrationDetail,
        ExamplePage,
        Version,
    )

app = typer.Typer(
    help="List, show, restore, delete and move the calibration sets of a service.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="Name of the calibration set.")]

_SHOWN_ALPHA = 0.10
_RIGHT = {"version", "accuracy", "added", "updated", "removed", "pairs"}
# The first field of an exported set, with the version of the format, and the other ones.
_MARK, _FORMAT = "scope_judge_set", 3
_DESCRIBED = ("name", "version", "judge", "fingerprint", "n", "release")


@app.command(name="list")
def list_sets(url: Url = DEFAULT_URL) -> None:
    """List the sets that your key can use. In a pipe, the table is tab-separated.

    The last column has the guarantees for which alpha 0.10 is feasible.
    """
    with connected(url) as client:
        calibrations = client.calibrations()
    headings = ("name", "version", "pairs", "judge", "accuracy", f"alpha {_SHOWN_ALPHA:.2f}")
    print_cells(headings, map(_cells, calibrations), right=_RIGHT)
    if not calibrations:
        say("There is no calibration set: `scope-judge calibrate FILE` makes one.")


def _cells(one: "Calibration") -> list[str]:
    rows = [row for row in one.thresholds if row.alpha == _SHOWN_ALPHA]
    feasible = ", ".join(row.guarantee for row in rows if row.feasible)
    missing = any(row.labels_missing for row in rows)
    can = feasible or ("labels missing" if missing else "infeasible")
    return [one.name, str(one.version), str(one.n), one.judge, _share(one.accuracy), can]


@app.command()
def show(name: Name, url: Url = DEFAULT_URL) -> None:
    """Show the thresholds and the quality of a set."""
    with connected(url) as client:
        detail = client.calibration(name)
    print_detail(detail, output=stdout)
    for line in _quality(detail):
        say(line, output=stdout)


def _quality(detail: "CalibrationDetail") -> Iterable[str]:
    yield f"judge {detail.judge} ({detail.fingerprint[:12]})"
    yield (
        f"expected calibration error {_share(detail.expected_calibration_error)}, label mass "
        f"{_share(detail.mean_label_mass)}, off task {detail.off_task}"
    )


@app.command()
def versions(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most versions to list.")] = 20,
    url: Url = DEFAULT_URL,
) -> None:
    """List the changes of a set, newest first."""
    with connected(url) as client:
        changes = client.versions(name, limit=limit)
    headings = ("version", "when", "by", "action", "added", "updated", "removed", "pairs")
    print_cells(headings, map(_change_cells, changes), right=_RIGHT)


def _change_cells(change: "Version") -> list[str]:
    to = change.rolled_back_to
    return [
        str(change.version),
        change.at,
        change.by,
        change.action if to is None else f"{change.action} to {to}",
        str(change.added),
        str(change.updated),
        "" if change.removed is None else str(change.removed),
        str(change.n),
    ]


@app.command()
def rollback(
    name: Name,
    version: Annotated[int, typer.Argument(min=1, help="The version to restore.")],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Restore an earlier version of a set, even a deleted one, as a new version.

    Shows the effect and asks.
    """
    with connected(url) as client:
        would = client.rollback(name, version, dry_run=True)
        show_change(name, would)
        ask(f"Roll {name} back to version {version}?", yes=yes, otherwise="nothing was changed")
        with changing():
            now = client.rollback(name, version)
    say(f"{name} is version {now.version}, with the {now.n} examples of version {version}.")


@app.command()
def delete(name: Name, yes: Yes = False, url: Url = DEFAULT_URL) -> None:
    """Delete a set. Its trail stays, so `sets rollback` can restore it.

    Shows the effect and asks.
    """
    with connected(url) as client:
        would = client.preview_deletion(name)
        show_deletion(name, would)
        shown = "" if would.version is None else f", version {would.version}"
        ask(f"Delete {name}{shown}?", yes=yes, otherwise="nothing was deleted")
        with changing():
            client.delete_calibration(name)
        changes = client.versions(name, limit=1)
    say(f"{name} is deleted.")
    if would.version is None or not changes:
        return
    # The trail has the deletion last.
    last = changes[0].version - 1
    say(f"`scope-judge sets rollback {name} {last}` restores it from its trail.")


@app.command(name="export")
def export_set(
    name: Name,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .jsonl, also .gz or .zst.  [default: stdout]"),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace --out.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write the scores and labels of a set as JSONL, without texts.

    The first line describes the set; every other line is an example.
    """
    if out is not None and format_of(out) != "jsonl":
        raise CommandError(f"--out {out}: the name must end in .jsonl, also .gz or .zst")
    check_output(out, (), overwrite=overwrite)
    with connected(url) as client:
        page = client.examples(name)
    described = {field: getattr(page, field) for field in _DESCRIBED}
    write_all(out, [{_MARK: _FORMAT, **described}, *map(asdict, page.examples)])
    if out is not None:
        say(f"{out} has {name}, version {page.version}, with {page.n} examples.")


@app.command(name="import")
def import_set(
    file: Annotated[Path, typer.Argument(help="File of `sets export`; - is stdin.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the calibration set.  [default: the name in FILE]"),
    ] = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Add an exported set to a service with the same judge.

    Shows the effect and asks. Updates examples that the set has already.
    """
    from scope_judge import TooLargeError

    exported = _read_set(file)
    into = name or exported.name
    with connected(url) as client:
        info = client.info()
        if info.fingerprint != exported.fingerprint:
            raise CommandError(
                f"the judge {exported.judge!r} ({exported.fingerprint[:12]}) of scope-judge "
                f"{exported.release} scored {file}, and the service has the judge {info.judge!r} "
                f"({info.fingerprint[:12]}) of scope-judge {info.version}. Import into a service "
                "with that judge, or run `scope-judge calibrate` on the labeled pairs, which "
                "judges them again"
            )
        add = partial(
            client.add_scores,
            into,
            exported.examples,
            fingerprint=exported.fingerprint,
            judge=exported.judge,
        )
        try:
            show_change(into, add(dry_run=True))
        except TooLargeError:
            say("Their effect cannot be shown before, because they need several requests.")
        ask(f"Import into {into}?", yes=yes, otherwise="nothing was imported")
        report = add()
    say(
        f"{into} is version {report.version} with {report.n} examples: added {report.added}, "
        f"updated {report.updated}, removed {report.removed}."
    )


def _read_set(file: Path) -> "ExamplePage":
    """Reads the file of an exported set."""
    from scope_judge.errors import AnswerError
    from scope_judge.parsing import parse
    from scope_judge.records import ExamplePage

    first, *rows = read_rows(file)
    described = first.fields
    if _MARK not in described:
        raise CommandError(
            f"{first.place}: this is not an exported set. `scope-judge sets export` writes one; "
            "`scope-judge calibrate` reads labeled pairs"
        )
    if described[_MARK] != _FORMAT or any(field not in described for field in _DESCRIBED):
        raise CommandError(
            f"{first.place}: this release reads sets of format {_FORMAT}, and this set has another "
            "one: use the release that wrote it, or export the set again with this release"
        )
    if len(rows) != described["n"]:
        raise CommandError(
            f"{file} has {len(rows)} examples and was written with {described['n']}: it was cut "
            "off or changed; export the set again"
        )
    examples = [row.fields for row in rows]
    try:
        return parse(ExamplePage, {**described, "min_label_mass": 0.0, "examples": examples})
    except AnswerError:
        raise CommandError(f"{file} is damaged: export the set again") from None


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
