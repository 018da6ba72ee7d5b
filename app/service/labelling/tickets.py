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
from dataclasses import dataclass
from typing import Final

from app.core.comparison import Side
from app.service.labelling.pairs import BlindPair, PairText

TICKET: Final = r"^[0-9a-f]{32}\.[AB]\.[0-9a-f]{32}$"
# Part of each seal, so that another rule makes other seals.
_RULE = "scope-judge audit 1"


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


def _seal(audit: str, left: Side, shown: PairText) -> str:
    sealed = json.dumps([_RULE, audit, left, shown.question, shown.left, shown.right])
    return hashlib.sha256(sealed.encode()).hexdigest()[:32]
