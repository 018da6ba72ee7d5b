"""`scope-judge audits`: shows, labels and absorbs audits, and ends their alarms."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, changing, connected
from app.cli.console import CommandError, ask, evidence, print_cells, say
from app.cli.effects import (
    EvenIfInfeasible,
    Yes,
    criterion_in_words,
    show_change,
)
from app.cli.running import options
from app.cli.stopping import resumable

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge.records import AlarmTimes, AuditEvent, AuditLabels, MonitoredCriterion

app = typer.Typer(
    help="Say what audits show, send labels from files, make labeled audits calibration examples, "
    "end alarms, and show the trail of all this.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="Name of the calibration set.")]
_HEADINGS = ("when", "by", "event", "what", "reason")
_AUDITS = (
    "labels",
    "ties",
    "tied verdicts",
    "errors",
    "wrong",
    "evidence",
    "alarm at",
    "open",
    "waiting",
)


@app.command()
def status(name: Name, url: Url = DEFAULT_URL) -> None:
    """Show the error rate of a set's verdicts, with its audits and alarms.

    Evidence of 1 means nothing; an alarm starts at "alarm at".
    """
    with connected(url) as client:
        found = client.monitor(name)
    say((f"{name}, version {found.version}: {found.summary}.", "bold"))
    headings = ("alpha", "guarantee", "delta", *_AUDITS, "state")
    print_cells(headings, map(_audited, found.criteria), right={"alpha", "delta", *_AUDITS})
    abstentions = sum(each.abstentions for each in found.criteria)
    say(f"All counts are of verdicts; {abstentions} abstentions were drawn, and need labels, too.")
    for each in found.criteria:
        if each.alarm:
            say(("alarm", "bold red"), f" under {criterion_in_words(each)} {_since(each)}")
    for value in (field.name for field in fields(found.drift)):
        stream = getattr(found.drift, value)
        if stream is not None and stream.alarm:
            say(
                ("drift", "bold red"),
                f" alarm of the {value.replace('_', ' ')} {_since(stream)}, "
                f"evidence {evidence(stream.evidence)}",
            )
    if found.note is not None:
        say(found.note)
    if found.recovery is not None:
        say(("recover:", "bold"), f" {found.recovery.note}")


def _since(alarm: "AlarmTimes") -> str:
    """When an alarm was raised, in words."""
    version = "" if alarm.rang_version is None else f" (version {alarm.rang_version})"
    return f"since {alarm.rang_at or 'an unknown time'}{version}"


def _audited(criterion: "MonitoredCriterion") -> list[str]:
    return [
        f"{criterion.alpha:g}",
        criterion.guarantee,
        "" if criterion.delta is None else f"{criterion.delta:g}",
        str(criterion.labelled),
        str(criterion.ties),
        _interval(criterion.tie_interval) if criterion.ties else "",
        str(criterion.errors),
        _interval(criterion.error_interval),
        evidence(criterion.evidence),
        f"{criterion.alarm_evidence:g}",
        str(criterion.open),
        str(criterion.waiting),
        _state(criterion),
    ]


def _interval(of: Sequence[float]) -> str:
    return " to ".join(f"{100 * share:.0f}%" for share in of)


def _state(criterion: "MonitoredCriterion") -> str:
    if criterion.alarm:
        return "alarm, suspended" if criterion.suspended else "alarm"
    return "certified" if criterion.certified else ""


@app.command()
def label(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files with the columns audit (its id), label and, for none, reason."),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Names of columns and labels, such as audit=id,label=better,A=left,B=right.",
        ),
    ] = None,
    encoding: options.Encoding = None,
    yes: Yes = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Send labels of audits from files.

    A label is A, B, tie, or none with a reason, which closes an audit that nobody can label. Rows
    without a label are left out. A repeated command changes nothing.
    """
    from app.files.audit_labels import read_audit_labels

    labels, reasons = read_audit_labels(files, ",".join(columns) if columns else None, encoding)
    if not labels and not reasons:
        raise CommandError("there is no label to send")
    ask(f"Send {len(labels) + len(reasons)} labels?", yes=yes, otherwise="nothing was sent")
    with (
        connected(url, patience_s=patience) as client,
        resumable("rerun the command: a label that was sent counts once"),
    ):
        if labels:
            _print_labels(client.label_audits(labels))
        if reasons:
            _print_labels(client.close_audits(reasons))


def _print_labels(report: "AuditLabels") -> None:
    lost = report.unknown + report.expired
    say(
        f"labeled {report.labelled}, closed {report.closed}, labels replaced {report.updated}, "
        f"sent before {report.unchanged}"
        + (f", unknown {report.unknown}, expired {report.expired}" if lost else "")
    )
    if report.earlier:
        labelers = ", ".join(sorted({each.labeler for each in report.earlier}))
        say(f"{len(report.earlier)} were labeled first by {labelers}: those labels stay")


@app.command()
def absorb(
    name: Name,
    even_if_infeasible: EvenIfInfeasible = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Turn labeled audits into calibration examples.

    Shows the effect and asks. After an alarm, the first audits since then replace all examples;
    `audits status` has their number. Without an alarm, those up to the first open one are added.
    """
    with connected(url) as client:
        absorbed = partial(client.absorb, name, even_if_infeasible=even_if_infeasible)
        would = absorbed(dry_run=True)
        show_change(name, would)
        if would.unlabelled_audits:
            say(
                "audits without a label that are left out, of verdicts and of abstentions: "
                f"{would.unlabelled_audits}"
            )
        if would.waiting:
            say(
                "labels that wait for an earlier open audit, of verdicts and of abstentions: "
                f"{would.waiting}"
            )
        ask(f"Absorb into {name}?", yes=yes, otherwise="nothing was absorbed")
        done = absorbed()
    say(f"{name} is version {done.version} with {done.n} examples.")


@app.command()
def resume(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why the verdicts are usable again, for the trail.")],
    url: Url = DEFAULT_URL,
) -> None:
    """End the alarms of a set: its verdicts are accepted again, and its audits start over."""
    with connected(url) as client, changing():
        ended = client.resume(name, reason)
    for alarm in ended:
        say(f"the alarm of {alarm.rang_at} under {criterion_in_words(alarm)} has ended.")
    if not ended:
        say(f"{name} has no alarm.")


@app.command()
def trail(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most entries to list.")] = 20,
    url: Url = DEFAULT_URL,
) -> None:
    """List alarms, their ends, changed labels and closed audits of a set, newest first."""
    with connected(url) as client:
        entries = client.audit_trail(name, limit=limit)
    rows = ([each.at, each.by, each.event, _what(each), each.reason or ""] for each in entries)
    print_cells(_HEADINGS, rows)


def _what(entry: "AuditEvent") -> str:
    # Only alarms and their ends have a criterion.
    if entry.alpha is None:
        return f"{entry.id}: {entry.before or 'open'} to {entry.after}"
    text = f"version {entry.version}, {criterion_in_words(entry)}"
    if entry.event != "alarm":
        return text
    abstains = ", judgments abstain" if entry.suspended else ""
    ends = "" if entry.audits is None else f", the next {entry.audits} audits end it"
    return f"{text}, {entry.errors} errors in {entry.audited} labels{abstains}{ends}"
