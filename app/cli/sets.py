"""`scope-judge sets`: lists, shows, restores, deletes and moves calibration sets of a service."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.console import console, failure, print_thresholds
from app.cli.score_upload import set_path, upload
from app.cli.service_client import DEFAULT_URL, Url, connected
from app.cli.set_file import read_set, set_rows, write_set
from app.core.errors import ScopeJudgeError

app = typer.Typer(
    help="List, show, restore, delete and move the calibration sets of a service.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="Name of the calibration set.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's answer as JSON.")]

_SHOWN_ALPHA = 0.10
_COUNTS = ("added", "updated", "removed", "n")
_RIGHT = {"version", "accuracy", *_COUNTS}


@app.command(name="list")
def list_sets(as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List the sets that your key may use, as a table or on a pipe as tab-separated lines.

    The last column has the guarantees under which alpha 0.10 accepts any verdict.
    """
    with connected(url) as service:
        found = service.get("/calibrations")["calibrations"]
    if as_json:
        _print_json(found)
        return
    headings = ("name", "version", "n", "judge", "accuracy", f"alpha {_SHOWN_ALPHA:.2f}")
    _print_table(headings, ([*map(str, _cells(each))] for each in found))
    if not found:
        _say("There is no calibration set: `scope-judge calibrate FILE` makes one.")


def _cells(found: dict[str, Any]) -> tuple[Any, ...]:
    rows = [row for row in found["thresholds"] if row["alpha"] == _SHOWN_ALPHA]
    feasible = ", ".join(row["guarantee"] for row in rows if row["feasible"])
    # Services of older releases have no pairs without labels.
    missing = any(row.get("labels_missing") for row in rows)
    accuracy = _share(found["accuracy"])
    can = feasible or ("labels missing" if missing else "infeasible")
    return found["name"], found["version"], found["n"], found["judge"], accuracy, can


@app.command()
def show(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show the thresholds and the quality of a set."""
    with connected(url) as service:
        found = service.get(set_path(name))
    if as_json:
        _print_json(found)
        return
    output = Console(highlight=False)
    print_thresholds(name, found["version"], found["n"], found["thresholds"], output=output)
    for line in _quality(found):
        output.print(escape(line), soft_wrap=True)


def _quality(found: dict[str, Any]) -> Iterable[str]:
    yield f"judge {found['judge']} ({found['fingerprint'][:12]})"
    yield (
        f"accuracy {_share(found['accuracy'])}, AUROC {_share(found['auroc'])}, expected "
        f"calibration error {_share(found['expected_calibration_error'])}"
    )
    yield (
        f"position flips {_share(found['position_flips'])}, label mass "
        f"{_share(found['mean_label_mass'])}, off task {found['off_task']}, label noise "
        f"{found['label_noise']:g}"
    )
    if "clusters" in found:
        yield (
            f"labelled {found['labelled']}, without a label {found['unlabelled']}, ties of a pool "
            f"{found['pool_ties']}; pairs of one question: {found['clusters']}, pac counts "
            f"{found['counted']} pairs of {found['questions']} questions"
        )
    if found["traffic"] is not None:
        yield from _traffic(found["traffic"])


def _traffic(found: dict[str, Any]) -> Iterable[str]:
    abstentions = (
        ""
        if found["abstentions"] is None
        else f"abstentions {_share(found['abstentions'])} (labelled pairs: "
        f"{_share(found['expected_abstentions'])}), "
    )
    yield (
        f"the last {found['judgments']} judgments: {abstentions}uncertainty "
        f"{_share(found['uncertainty'])} (labelled pairs: {_share(found['expected_uncertainty'])})"
    )
    if found["drifted"]:
        yield "the traffic has drifted: it is unlike the labelled pairs (docs/guides/monitoring.md)"


@app.command()
def versions(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most versions to list.")] = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List the changes of a set, newest first: when, by whom, and with which effect."""
    with connected(url) as service:
        found = service.get(set_path(name, "/versions"), limit=limit)["versions"]
    if as_json:
        _print_json(found)
        return
    rows = (
        [
            *(str(each["version"]), each["at"], each["by"], _action(each)),
            *("" if each[count] is None else str(each[count]) for count in _COUNTS),
        ]
        for each in found
    )
    _print_table(("version", "when", "by", "action", *_COUNTS), rows)


def _action(change: dict[str, Any]) -> str:
    to = change["rolled_back_to"]
    return change["action"] if to is None else f"{change['action']} to {to}"


@app.command()
def rollback(
    name: Name,
    version: Annotated[int, typer.Argument(min=1, help="The version to restore.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Restore an earlier version of a set, as a new version; also of a deleted set."""
    with connected(url) as service:
        now = service.change_once(set_path(name, "/rollback"), {"version": version})
    _say(f"{name} is version {now['version']}, with the {now['n']} examples of version {version}.")


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a set; its trail is kept, so that a rollback can restore it."""
    with connected(url) as service:
        # The trail, because a set that cannot be read can be deleted, too.
        (newest,) = service.get(set_path(name, "/versions"), limit=1)["versions"]
        if not yes:
            _confirm(f"Delete {name}, version {newest['version']} with {newest['n']} examples?")
        service.delete_once(set_path(name))
    _say(
        f"{name} is deleted. `scope-judge sets rollback {name} {newest['version']}` restores it "
        "from its trail."
    )


def _confirm(question: str) -> None:
    if not _can_ask():
        raise failure("nobody can be asked, because stdin is no terminal: give --yes to delete")
    if not typer.confirm(question, err=True):
        raise failure("nothing was deleted")


@app.command(name="export")
def export_set(
    name: Name,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .jsonl, also .gz or .zst; default: stdout."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace --out.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write the scores and labels of a set as JSONL; the service keeps no texts."""
    try:
        with connected(url) as service:
            rows = set_rows(service, name)
        write_set(rows, out, overwrite=overwrite)
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    if out is not None:
        _say(f"{out} has {name}, version {rows[0]['version']}, with {rows[0]['n']} examples.")


@app.command(name="import")
def import_set(
    file: Annotated[Path, typer.Argument(help="File of `sets export`; - is stdin.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the calibration set, instead of that in FILE."),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Add an exported set to the service, whose judge must be the same.

    Examples that the set has already are updated, so that an import can be repeated.
    """
    try:
        exported = read_set(file)
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    into = name or exported.name
    with connected(url) as service:
        if service.fingerprint != exported.fingerprint:
            raise failure(
                f"the judge {exported.judge!r} ({exported.fingerprint[:12]}) scored {file}, and "
                f"the service has the judge {service.judge_name!r} ({service.fingerprint[:12]}). "
                "Import into a service with that judge, or run `scope-judge calibrate` on the "
                "labelled pairs, which judges them anew"
            )
        answer, counts = upload(
            service,
            into,
            exported.examples,
            judge=exported.judge,
            fingerprint=exported.fingerprint,
            label_noise=exported.label_noise,
            clusters=exported.clusters,
        )
    _say(
        f"{into} is version {answer['version']} with {answer['n']} examples: added "
        f"{counts['added']}, updated {counts['updated']}, removed {counts['removed']}."
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _on_a_terminal() -> bool:
    return sys.stdout.isatty()


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _say(text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints rows to stdout: as a table, or on a pipe as tab-separated lines."""
    if not _on_a_terminal():
        for cells in rows:
            print("\t".join(cells))
        return
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold", justify="right" if heading in _RIGHT else "left")
    for cells in rows:
        table.add_row(*map(escape, cells))
    Console().print(table)
