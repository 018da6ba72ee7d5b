"""Pairs that people label in another tool, and the labels that its answers mean.

A pair leaves with a ticket, `AUDIT.SIDE.SEAL`: the id of its audit, the response that is on the
left, and a digest of both and of the texts as they are shown. The answer comes back with the ticket
and the texts. If somebody has swapped two texts, moved a ticket to another pair or changed the
side, the seal does not fit, and the answer is not a label. The seal has no secret: whoever wants to
send wrong labels can choose the wrong side as well.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.core.comparison import Comparison, Side
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.fingerprint import drawn_pair
from app.service.labelling.checking import LabelledRow
from app.service.labelling.pairs import BlindPair, Choice, PairText

# The words that a tool shows, and its answers.
CANNOT: Final = "cannot be labelled"
WORDS: Mapping[Any, Choice | None] = {"left": "left", "right": "right", "tie": "tie", CANNOT: None}
# The longest reason that the service takes.
LONGEST_REASON = 200

TICKET: Final = r"^[0-9a-f]{32}\.[AB]\.[0-9a-f]{32}$"
# Part of each seal, so that another rule makes other seals.
_RULE = "scope-judge audit 1"
_NO_REASON = "no reason given"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolAnswer:
    """The answer of one person to one pair, as a tool wrote it; nothing is checked.

    Args:
        place: File and row number, for people.
        ticket: The ticket of the pair.
        question: The question as it was shown.
        left: The response on the left as it was shown.
        right: The response on the right.
        word: One of `WORDS`; None without an answer.
        reason: Why the pair cannot be labelled.
        at: Time of the answer, as the tool writes it; "" if it does not say.
        problem: The reason why there is no answer to read.
    """

    place: str
    ticket: Any = None
    question: Any = None
    left: Any = None
    right: Any = None
    word: Any = None
    reason: Any = None
    at: str = ""
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRow(LabelledRow):
    """The answer to an audit.

    Args:
        audit: Id of the audit; "" if it is not known.
    """

    audit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """The parts of a ticket; whether the seal fits is not checked.

    Args:
        audit: Id of the audit.
        left: The response on the left.
        seal: Digest of both and of the texts as they are shown.
    """

    audit: str
    left: Side
    seal: str

    @classmethod
    def of(cls, text: str) -> "Ticket | None":
        """Takes a ticket apart; returns None for another text."""
        if re.fullmatch(TICKET, text) is None:
            return None
        audit, side, seal = text.split(".")
        left: Side = "A" if side == "A" else "B"
        return cls(audit=audit, left=left, seal=seal)


def ticket_of(pair: BlindPair) -> str:
    """The ticket of a pair whose key is the id of its audit."""
    return f"{pair.key}.{pair.left}.{_seal(pair.key, pair.left, pair.text)}"


def audit_row(answer: ToolAnswer) -> AuditRow:
    """The label that an answer means, or the reason why it means none."""
    if answer.problem is not None:
        return AuditRow(place=answer.place, problem=answer.problem)
    ticket = Ticket.of(answer.ticket) if isinstance(answer.ticket, str) else None
    texts = (answer.question, answer.left, answer.right)
    if ticket is None or not all(isinstance(text, str) for text in texts):
        return _unusable(answer, "this is not a pair that `audits export` wrote")
    shown = PairText(question=answer.question, left=answer.left, right=answer.right)
    if ticket.seal != _seal(ticket.audit, ticket.left, shown):
        return _unusable(answer, "the pair is not as it was exported: a text or its ticket differs")
    if answer.word is not None and answer.word not in list(WORDS):
        return _unusable(answer, f"the answer is not one of {', '.join(WORDS)}")
    pair = BlindPair(key=ticket.audit, fields={}, left=ticket.left)
    choice = WORDS.get(answer.word)
    try:
        return AuditRow(
            place=answer.place,
            comparison=_comparison(shown, ticket.left),
            label=None if choice is None else pair.label_of(choice),
            name=comparison_id(ticket.audit),
            reason=_reason(answer.reason) if answer.word == CANNOT else None,
            audit=ticket.audit,
        )
    except InvalidComparisonError as exc:
        return _unusable(answer, exc.detail)


def comparison_id(audit: str) -> str:
    """The id of an audit without its last bit, which is the order of the two responses.

    Raises:
        InvalidRequestError: This is not the id of an audit.
    """
    try:
        return f"{drawn_pair(audit):x}"
    except ValueError:
        raise InvalidRequestError(f"{audit!r} is not the id of an audit") from None


def _unusable(answer: ToolAnswer, problem: str) -> AuditRow:
    return AuditRow(place=answer.place, problem=problem)


def _seal(audit: str, left: Side, shown: PairText) -> str:
    sealed = json.dumps([_RULE, audit, left, shown.question, shown.left, shown.right])
    return hashlib.sha256(sealed.encode()).hexdigest()[:32]


def _comparison(shown: PairText, left: Side) -> Comparison:
    a, b = (shown.left, shown.right) if left == "A" else (shown.right, shown.left)
    return Comparison.of(shown.question, a, b)


def _reason(reason: Any) -> str:
    """A reason that the service takes, in one line."""
    text = " ".join(reason.split()) if isinstance(reason, str) else ""
    return text.encode("utf-8", "replace").decode()[:LONGEST_REASON].strip() or _NO_REASON
