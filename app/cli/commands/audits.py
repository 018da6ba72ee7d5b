"""`scope-judge audits`: closes audits that nobody can label, ends alarms, shows their trail."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import print_cells, say
from app.cli.service_client import DEFAULT_URL, Url, connected, read
from app.cli.set_transfer import set_path

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge.answers import AuditEvent, EndedAlarm

app = typer.Typer(
    help="Close audits that nobody can label, end alarms, and show the trail of both.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="Name of the calibration set.")]

_HEADINGS = ("when", "by", "event", "what", "reason")


@app.command()
def close(
    audits: Annotated[list[str], typer.Argument(help="Ids of the audits.")],
    reason: Annotated[str, typer.Option(help="Why they cannot be labelled, for the trail.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Close audits that nobody can label, so that they hold no other label up.

    A closed audit counts as right for the alarm, and as an error for the certificate.
    """
    from scope_judge.answers import AuditLabels

    rows = [{"id": each, "label": "none", "reason": reason} for each in audits]
    with connected(url) as service:
        report = read(AuditLabels, service.post("/audits/labels", {"labels": rows}))
    say(
        f"closed {report.closed}, labels replaced {report.updated}, closed before "
        f"{report.unchanged}, unknown {report.unknown}, expired {report.expired}"
    )


@app.command()
def resume(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why the verdicts can be used again, for the trail.")],
    url: Url = DEFAULT_URL,
) -> None:
    """End the alarms of a set, so that its verdicts are accepted again; its audits begin anew."""
    from scope_judge.answers import Resumed

    with connected(url) as service:
        answer = service.change_once(set_path(name, "/resume"), {"reason": reason})
        ended = read(Resumed, answer).resumed
    for alarm in ended:
        say(f"the alarm of {alarm.rang_at} under {_criterion(alarm)} has ended.")
    if not ended:
        say(f"{name} has no alarm.")


@app.command()
def trail(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most entries to list.")] = 20,
    url: Url = DEFAULT_URL,
) -> None:
    """List alarms, their ends, changed labels and closed audits of a set, newest first."""
    from scope_judge.answers import AuditTrail

    with connected(url) as service:
        answer = service.get(set_path(name, "/audit-trail"), limit=limit)
    rows = (
        [entry.at, entry.by, entry.event, _what(entry), entry.reason or ""]
        for entry in read(AuditTrail, answer).entries
    )
    print_cells(_HEADINGS, rows)


def _what(entry: "AuditEvent") -> str:
    # Only alarms and their ends have a criterion.
    if entry.alpha is None:
        return f"{entry.id}: {entry.before or 'open'} to {entry.after}"
    text = f"version {entry.version}, {_criterion(entry)}"
    if entry.event != "alarm":
        return text
    abstains = ", judgments abstain" if entry.suspended else ""
    return f"{text}, {entry.errors} errors in {entry.audited} labels{abstains}"


def _criterion(alarm: "AuditEvent | EndedAlarm") -> str:
    delta = "" if alarm.delta is None else f", delta {alarm.delta:g}"
    return f"alpha {alarm.alpha:g} ({alarm.guarantee}{delta})"
