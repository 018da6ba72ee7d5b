"""Decides which comparisons are drawn: at random, and the same ones on every replica."""

import hmac
from collections.abc import Sequence
from typing import NamedTuple

from app.core.calibration import Calibration
from app.core.comparison import Comparison, Judgment
from app.core.fingerprint import example_digest, question_digest
from app.service.auditing.entries import CriterionKey, DrawEntry

_BITS = 64


class Candidate(NamedTuple):
    """A judgment that may be drawn.

    Args:
        comparison: The judged comparison.
        judgment: The judgment, made with an alpha.
        calibration: The version of the set that decided.
        gap_fwd: Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Logit of response_a minus that of response_b, response_a shown second.
    """

    comparison: Comparison
    judgment: Judgment
    calibration: Calibration
    gap_fwd: float
    gap_rev: float


class Drawn(NamedTuple):
    """The entry of a drawn judgment, and its text."""

    entry: DrawEntry
    text: str


class Sampler:
    """Draws each distinct comparison of a set with the same probability.

    A comparison is drawn if a keyed hash of its digest is below the rate. So whoever does not know
    the secret cannot predict the draws, a comparison that comes again is drawn again or not again,
    and a higher rate draws all that a lower rate draws.

    Args:
        secret: Secret of the store.
        rate: Probability of a draw, in [0, 1].
        fingerprint: Fingerprint of the judge.
    """

    def __init__(self, secret: bytes, *, rate: float, fingerprint: str) -> None:
        # Copied for each hash, which takes half the time of a new one.
        self._keyed = hmac.new(secret, digestmod="sha256")
        self._rate = rate
        self._fingerprint = fingerprint
        self._limit = round(rate * 2**_BITS)

    def drawn(self, candidates: Sequence[Candidate], *, at: float) -> list[Drawn | None]:
        """Returns for each candidate, in order, its draw or None.

        Labelled examples of the set are never drawn: they say nothing about other traffic.

        Args:
            candidates: The judgments.
            at: Time of the judgments, in seconds since 1970.
        """
        return [self._drawn(each, at) for each in candidates]

    def _drawn(self, candidate: Candidate, at: float) -> Drawn | None:
        calibration, judgment = candidate.calibration, candidate.judgment
        digest = example_digest(self._fingerprint, candidate.comparison)
        chance = self._hash("draw", calibration.name, digest)
        if int.from_bytes(chance[: _BITS // 8], "big") >= self._limit:
            return None
        if digest in calibration.examples:
            return None
        criterion = judgment.criterion
        assert criterion.alpha is not None
        entry = DrawEntry(
            id=self._id(calibration.name, digest, candidate.comparison),
            calibration=calibration.name,
            fingerprint=self._fingerprint,
            digest=digest,
            question=question_digest(candidate.comparison),
            gap_fwd=candidate.gap_fwd,
            gap_rev=candidate.gap_rev,
            label_mass=judgment.label_mass,
            write_id=calibration.write_id,
            version=calibration.version,
            criterion=CriterionKey(criterion.alpha, criterion.guarantee, criterion.delta),
            label_noise=calibration.label_noise,
            accepted=judgment.verdict != "abstain",
            rate=self._rate,
            at=at,
        )
        return Drawn(entry, entry.text)

    def _id(self, name: str, digest: str, comparison: Comparison) -> str:
        """Returns 127 bits for the comparison, and one last bit for the order of its responses."""
        of_both = self._hash("id", name, digest)[:16]
        bit = comparison.response_a > comparison.response_b
        return (of_both[:-1] + bytes([of_both[-1] & 0xFE | bit])).hex()

    def _hash(self, purpose: str, name: str, digest: str) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(f"{purpose}\0{name}\0{digest}".encode())
        return keyed.digest()
