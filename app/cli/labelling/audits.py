"""Audits of a running service that a person labels, blind and in the order of the draws."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from app.cli.console import CommandError, say
from app.cli.running.drawn import read_drawn
from app.cli.service_client import ServiceClient, read
from app.files.shapes import REQUIRED
from app.service.labelling.answers import NONE, Answers
from app.service.labelling.pairs import BlindPair, left_side
from app.service.labelling.session import AuditSession

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import AuditLabels

_MOST_AUDITS = 1000
# Longest reason that the service takes.
_LONGEST_REASON = 200


def drawn_pairs(files: Sequence[Path], seed: int) -> Iterator[BlindPair]:
    """The drawn pairs in files; the key of each is the id of its audit.

    Raises:
        InvalidRequestError: A file cannot be read, or has something else.
    """
    for path in files:
        for identifier, row in read_drawn(path).items():
            texts = {name: row[name] for name in REQUIRED}
            yield BlindPair(key=identifier, fields=texts, left=left_side(seed, identifier))


class AuditLabelling:
    """One person who labels the open audits whose texts are known.

    Args:
        service: The service.
        answers: The pairs, and the answers so far.
    """

    def __init__(self, service: ServiceClient, answers: Answers) -> None:
        self._service = service
        self._answers = answers
        new = {pair.key for pair in answers.pairs} - answers.pooled.keys()
        answers.add_digests({key: key for key in new})

    def run(self) -> None:
        """Asks about the open audits, oldest first, until all have an answer or the person quits.

        The monitor counts labels in the order of the draws, so the oldest ones count first.

        Raises:
            CommandError: The service does not answer for too long, or refuses the labels.
        """
        # Imported late: the help needs no terminal.
        from app.cli.labelling.screen import PairScreen

        # Answers of a run that was stopped.
        self._post()
        session = AuditSession(self._answers)
        needed = session.needed(self._open())
        self._answers.note_posted(needed.dropped, posted=False)
        self._post()
        absent = f"; {needed.absent} open audits are not in these files" if needed.absent else ""
        asked = [pair for pair in needed.asked if not self._answers.is_answered(pair)]
        session.ask(asked)
        screen = PairScreen(session, closes=True)
        while session.current is not None and (left := screen.run()) != "quit":
            if left == "close" and (reason := _reason()):
                session.close(reason)
        self._post()
        say(f"{len(asked) - session.waiting} of {len(asked)} open audits were shown{absent}.")

    def _open(self) -> list[str]:
        """The ids of the open audits, oldest first; in the order of the files where they have it.

        The last bit of an id is the order of the two responses.
        """
        from scope_judge.answers import AuditPage

        own = {_pair_of(pair.key): pair.key for pair in self._answers.pairs}
        found, after = list[str](), 0
        while True:
            answer = self._service.get("/audits", status="open", limit=_MOST_AUDITS, after=after)
            page = read(AuditPage, answer)
            found += [own.get(_pair_of(audit.id), audit.id) for audit in page.audits]
            if page.next_after is None or page.next_after <= after:
                return found
            after = page.next_after

    def _post(self) -> None:
        """Sends the answers that the service does not have; a repeated one changes nothing."""
        from scope_judge import AuditLabels

        rows: list[dict[str, Any]] = [
            {"id": key, "label": label} for key, label in self._answers.unposted.items()
        ]
        rows += [
            {"id": key, "label": NONE, "reason": reason}
            for key, reason in self._answers.reasons.items()
        ]
        for start in range(0, len(rows), _MOST_AUDITS):
            part = rows[start : start + _MOST_AUDITS]
            report = read(AuditLabels, self._service.post("/audits/labels", {"labels": part}))
            self._answers.note_posted([row["id"] for row in part])
            _print(report)


def _pair_of(identifier: str) -> str:
    """An id without the order of its two responses."""
    try:
        return f"{int(identifier, 16) >> 1:x}"
    except ValueError:
        raise CommandError(f"{identifier!r} is not the id of an audit") from None


def _reason() -> str:
    """Asks why a pair cannot be labelled; "" goes back to it."""
    answer: str = typer.prompt(
        "Why can it not be labelled? (Enter goes back)", default="", show_default=False, err=True
    )
    return answer.strip()[:_LONGEST_REASON]


def _print(report: "AuditLabels") -> None:
    lost = report.unknown + report.expired
    say(
        f"labelled {report.labelled}, closed {report.closed}, labels replaced {report.updated}, "
        f"sent before {report.unchanged}"
        + (f", unknown {report.unknown}, expired {report.expired}" if lost else "")
    )
