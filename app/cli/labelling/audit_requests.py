"""Requests about the audits of a running service: all of them in order, and labels for them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from app.cli.console import say
from app.cli.service_client import ServiceClient, read

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import Audit, AuditLabels

_MOST_AUDITS = 1000


def listed_audits(service: ServiceClient, **query: str) -> Iterator["Audit"]:
    """Yields the audits, oldest first.

    Args:
        service: The service.
        **query: Further fields of `GET /audits`, such as `status`.

    Raises:
        CommandError: The service does not answer for too long.
    """
    from scope_judge.answers import AuditPage

    after = 0
    while True:
        page = read(AuditPage, service.get("/audits", limit=_MOST_AUDITS, after=after, **query))
        yield from page.audits
        if page.next_after is None or page.next_after <= after:
            return
        after = page.next_after


def of_set(name: str | None) -> dict[str, str]:
    """The field of a query that asks for audits of one set; none for all sets."""
    return {} if name is None else {"calibration": name}


def post_labels(
    service: ServiceClient,
    rows: Sequence[dict[str, Any]],
    *,
    posted: Callable[[list[str]], None] = lambda _: None,
) -> None:
    """Sends labels, and prints what became of them; a repeated one changes nothing.

    Args:
        service: The service.
        rows: The labels as in POST /audits/labels.
        posted: Receives the ids of each request after its answer.

    Raises:
        CommandError: The service does not answer for too long, or refuses the labels.
    """
    from scope_judge import AuditLabels

    for start in range(0, len(rows), _MOST_AUDITS):
        part = list(rows[start : start + _MOST_AUDITS])
        report = read(AuditLabels, service.post("/audits/labels", {"labels": part}))
        posted([row["id"] for row in part])
        _print(report)


def _print(report: "AuditLabels") -> None:
    lost = report.unknown + report.expired
    say(
        f"labelled {report.labelled}, closed {report.closed}, labels replaced {report.updated}, "
        f"sent before {report.unchanged}"
        + (f", unknown {report.unknown}, expired {report.expired}" if lost else "")
    )
