"""Audits of a running service that a person labels, blind and in the order of the draws."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from app.cli.console import say
from app.cli.labelling.audit_requests import listed_audits, of_set, post_labels
from app.cli.labelling.kept_pairs import MOST_PAIRS, kept_pairs
from app.cli.running.drawn import read_drawn
from app.cli.service_client import ServiceClient
from app.files.journal import Journal
from app.files.shapes import REQUIRED
from app.service.labelling.answers import NONE, Answers
from app.service.labelling.pairs import BlindPair, left_side
from app.service.labelling.session import AuditSession
from app.service.labelling.tickets import LONGEST_REASON, comparison_id


def drawn_pairs(files: Sequence[Path], seed: int) -> Iterator[BlindPair]:
    """The drawn pairs in files; the key of each is the id of its audit.

    Raises:
        InvalidRequestError: A file cannot be read, or has something else.
    """
    for path in files:
        for identifier, row in read_drawn(path).items():
            texts = {name: row[name] for name in REQUIRED}
            yield BlindPair(key=identifier, fields=texts, left=left_side(seed, identifier))


def open_audits(
    service: ServiceClient, pairs: Sequence[BlindPair], name: str | None = None
) -> list[str]:
    """The ids of the open audits, oldest first; in the order of the pairs that are known.

    The last bit of an id is the order of the two responses.

    Args:
        service: The service.
        pairs: The pairs that are known.
        name: Only audits of this calibration set; None for all sets.

    Raises:
        CommandError: The service does not answer for too long.
    """
    own = {comparison_id(pair.key): pair.key for pair in pairs}
    audits = listed_audits(service, status="open", **of_set(name))
    return [own.get(comparison_id(audit.id), audit.id) for audit in audits]


def label_files(
    service: ServiceClient, journal: Journal, pairs: Sequence[BlindPair], *, name: str | None
) -> None:
    """Labels the open audits among the pairs of files.

    Raises:
        CommandError: The service does not answer for too long, or refuses the labels.
    """
    labelling = AuditLabelling(service, Answers(journal, pairs))
    # Answers of a run that was stopped.
    labelling.send()
    absent = labelling.ask(open_audits(service, pairs, name))
    if absent:
        say(f"{absent} open audits are not in these files.")


def label_kept(service: ServiceClient, journal: Journal, *, name: str | None, seed: int) -> None:
    """Labels the open audits whose texts the service keeps; leaves no journal behind.

    Raises:
        CommandError: The service does not answer for too long, has no texts, or refuses the key or
            the labels.
    """
    # Answers of a run that was stopped; their texts may be gone.
    answered = [BlindPair(key=key, fields={}, left="A") for key in journal.results]
    AuditLabelling(service, Answers(journal, answered)).send()
    kept = kept_pairs(service, name, seed, most=MOST_PAIRS)
    kept.check()
    if kept.pairs:
        AuditLabelling(service, Answers(journal, kept.pairs)).ask([x.key for x in kept.pairs])
    if kept.told:
        say(kept.told)
    if journal.results:
        journal.remove()


class AuditLabelling:
    """One person who labels open audits whose texts are known.

    Args:
        service: The service.
        answers: The pairs, and the answers so far.
    """

    def __init__(self, service: ServiceClient, answers: Answers) -> None:
        self._service = service
        self._answers = answers
        new = {pair.key for pair in answers.pairs} - answers.pooled.keys()
        answers.add_digests({key: key for key in new})

    def ask(self, audits: Sequence[str]) -> int:
        """Asks about open audits until all have an answer or the person quits; sends the answers.

        Args:
            audits: Their ids, oldest first: the monitor counts labels in this order.

        Returns:
            The number of those whose texts are unknown.

        Raises:
            CommandError: The service does not answer for too long, or refuses the labels.
        """
        # Imported late: the help needs no terminal.
        from app.cli.labelling.screen import PairScreen

        session = AuditSession(self._answers)
        needed = session.needed(audits)
        self._answers.note_posted(needed.dropped, posted=False)
        self.send()
        asked = [pair for pair in needed.asked if not self._answers.is_answered(pair)]
        session.ask(asked)
        screen = PairScreen(session, closes=True)
        while session.current is not None and (left := screen.run()) != "quit":
            if left == "close" and (reason := _reason()):
                session.close(reason)
        self.send()
        say(f"{len(asked) - session.waiting} of {len(asked)} open audits were shown.")
        return needed.absent

    def send(self) -> None:
        """Sends the answers that the service does not have; a repeated one changes nothing."""
        rows: list[dict[str, Any]] = [
            {"id": key, "label": label} for key, label in self._answers.unposted.items()
        ]
        rows += [
            {"id": key, "label": NONE, "reason": reason}
            for key, reason in self._answers.reasons.items()
        ]
        post_labels(self._service, rows, posted=self._answers.note_posted)


def _reason() -> str:
    """Asks why a pair cannot be labelled; "" goes back to it."""
    answer: str = typer.prompt(
        "Why can it not be labelled? (Enter goes back)", default="", show_default=False, err=True
    )
    return answer.strip()[:LONGEST_REASON]
