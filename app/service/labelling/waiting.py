"""The pairs of a set that wait for a label, and those whose texts the service does not have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.service.auditing.ledger import OPINIONS, Opinion, Rows
from app.service.auditing.texts import key_of

# Most digests that a list has, which is 7 MB then.
MOST_DIGESTS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingPair:
    """A pair that waits for a label.

    Args:
        id: Id of its audit.
        digest: Digest of the comparison, by `core.fingerprint.example_digest`.
    """

    id: str
    digest: str


def waiting_pairs(
    rows: Rows, opinions: Mapping[str, Sequence[Opinion]]
) -> Mapping[str, WaitingPair]:
    """Returns the open audits without those that wait for a decision; long work for 100,000.

    Args:
        rows: The audits of `Ledger.open_draws`.
        opinions: Key of a pair of the set -> its opinions.

    Returns:
        Key of a pair -> the pair, oldest first.
    """
    pairs = {
        key_of(identifier.hex()): WaitingPair(id=identifier.hex(), digest=digest.hex())
        for identifier, digest in rows.tolist()
    }
    decided = {key for key, given in opinions.items() if len(given) == OPINIONS}
    return {key: pair for key, pair in pairs.items() if key not in decided}


@dataclass(frozen=True, kw_only=True, slots=True)
class Textless:
    """Pairs that wait for a label and whose texts the service does not have.

    Args:
        fingerprint: Fingerprint of the judge, a part of each digest.
        digests: Digests of the oldest `MOST_DIGESTS` pairs, oldest first.
        total: Number of all of them.
    """

    fingerprint: str
    digests: Sequence[str]
    total: int

    @classmethod
    def of(
        cls,
        rows: Rows,
        kept: Collection[str],
        opinions: Mapping[str, Sequence[Opinion]],
        fingerprint: str,
    ) -> "Textless":
        """Finds the pairs; long work for 100,000 of them.

        Args:
            rows: The audits of `Ledger.open_draws`.
            kept: Keys of the pairs whose texts the service has.
            opinions: Key of a pair of the set -> its opinions.
            fingerprint: Fingerprint of the judge.
        """
        waiting = waiting_pairs(rows, opinions)
        digests = [pair.digest for key, pair in waiting.items() if key not in kept]
        return cls(fingerprint=fingerprint, digests=digests[:MOST_DIGESTS], total=len(digests))
