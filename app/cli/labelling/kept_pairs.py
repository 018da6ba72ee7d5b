"""The open audits whose texts the service keeps, as pairs to label."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from app.cli.console import CommandError
from app.cli.labelling.audit_requests import of_set
from app.cli.service_client import ServiceClient, read
from app.service.labelling.pairs import BlindPair, left_side

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import PairTexts

# Pairs of one run of `audits label`: more than a person labels, and at most 64 MiB of texts.
MOST_PAIRS = 500
_OTHERWISE = (
    "For those of `scope-judge judge`, `battles` or `filter`, give OUT.audits.jsonl; close what "
    "nobody can label with `scope-judge audits close`."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptPairs:
    """Open audits of a service that keeps texts.

    Args:
        pairs: Those with texts, oldest first.
        without: Number of those without texts.
        keeps: Whether the service keeps the texts of new draws.
        more: Whether others follow.
    """

    pairs: Sequence[BlindPair]
    without: int
    keeps: bool
    more: bool

    def check(self) -> None:
        """Raises an error if audits are open and none of them has texts."""
        if self.pairs or not self.without:
            return
        if self.keeps:
            raise CommandError(
                f"none of the {self.without} open audits has texts in the service: they were drawn "
                f"before SCOPE_AUDIT_TEXTS was on, or their texts were lost. {_OTHERWISE}"
            )
        raise CommandError(
            f"the service keeps no texts of its {self.without} open audits. Start it with "
            f"SCOPE_AUDIT_TEXTS=on to label new ones here. {_OTHERWISE}"
        )

    @property
    def told(self) -> str:
        """Sentences about the audits that are not among the pairs."""
        told = []
        if not self.pairs:
            told.append("No audit is open.")
        if self.without:
            told.append(f"{self.without} open audits have no texts in the service. {_OTHERWISE}")
        if self.more:
            told.append("More audits are open: rerun the command.")
        return " ".join(told)


def kept_pairs(
    service: ServiceClient, name: str | None, seed: int, *, most: int | None = None
) -> KeptPairs:
    """Reads the oldest open audits with the texts that the service keeps.

    Args:
        service: The service.
        name: Only audits of this calibration set; None for all sets.
        seed: Decides for each pair which response is on the left.
        most: Number of pairs after which no other page is read; None for all pages.

    Raises:
        CommandError: The service does not answer, or refuses the key.
    """
    from scope_judge.answers import AuditTextsPage

    pairs, without, after = list[BlindPair](), 0, 0
    while True:
        answer = service.get("/audits/texts", after=after, **of_set(name))
        page = read(AuditTextsPage, answer)
        for audit in page.audits:
            if audit.texts is None:
                without += 1
                continue
            left = left_side(seed, audit.id)
            pairs.append(BlindPair(key=audit.id, fields=_fields(audit.texts), left=left))
        last = page.next_after is None or page.next_after <= after
        if last or (most is not None and len(pairs) >= most):
            return KeptPairs(pairs=pairs, without=without, keeps=page.keeps_texts, more=not last)
        after = page.next_after or 0


def _fields(texts: "PairTexts") -> dict[str, Any]:
    question = texts.question
    turns = question if isinstance(question, str) else [asdict(turn) for turn in question]
    return {"question": turns, "response_a": texts.response_a, "response_b": texts.response_b}
