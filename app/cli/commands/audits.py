"""`scope-judge audits`: closes audits that nobody can label, ends alarms, shows their trail."""

from typing import Annotated, Any

import typer

from app.cli.console import print_cells, say
from app.cli.service_client import DEFAULT_URL, Url, connected
from app.cli.set_transfer import set_path

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
    rows = [{"id": each, "label": "none", "reason": reason} for each in audits]
    with connected(url) as service:
        found = service.post("/audits/labels", {"labels": rows})
    say(
        f"closed {found['closed']}, labels replaced {found['updated']}, closed before "
        f"{found['unchanged']}, unknown {found['unknown']}, expired {found['expired']}"
    )


@app.command()
def resume(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why the verdicts can be used again, for the trail.")],
    url: Url = DEFAULT_URL,
) -> None:
    """End the alarms of a set, so that its verdicts are accepted again; its audits begin anew."""
    with connected(url) as service:
        ended = service.change_once(set_path(name, "/resume"), {"reason": reason})["resumed"]
    for each in ended:
        say(f"the alarm of {each['rang_at']} under {_criterion(each)} has ended.")
    if not ended:
        say(f"{name} has no alarm.")


@app.command()
def trail(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most entries to list.")] = 20,
    url: Url = DEFAULT_URL,
) -> None:
    """List alarms, their ends, changed labels and closed audits of a set, newest first."""
    with connected(url) as service:
        entries = service.get(set_path(name, "/audit-trail"), limit=limit)["entries"]
    rows = (
        [each["at"], each["by"], each["event"], _what(each), each["reason"] or ""]
        for each in entries
    )
    print_cells(_HEADINGS, rows)


def _what(entry: dict[str, Any]) -> str:
    if entry["id"] is not None:
        return f"{entry['id']}: {entry['before'] or 'open'} to {entry['after']}"
    text = f"version {entry['version']}, {_criterion(entry)}"
    if entry["event"] != "alarm":
        return text
    abstains = ", judgments abstain" if entry["suspended"] else ""
    return f"{text}, {entry['errors']} errors in {entry['audited']} labels{abstains}"


def _criterion(found: dict[str, Any]) -> str:
    delta = "" if found["delta"] is None else f", delta {found['delta']:g}"
    return f"alpha {found['alpha']:g} ({found['guarantee']}{delta})"
