"""Decides which judgments are drawn: at random, and the same ones on every replica."""

import hmac
from collections.abc import Sequence
from typing import NamedTuple

from app.audits.entries import Audit, Use
from app.audits.texts import written_texts
from app.core.comparison import Case, Comparison, Criterion
from app.core.fingerprint import example_digest, question_digest
from app.core.preference import Score

_BITS = 64
# A draw whose texts are too long to be kept waits for its label for an hour. Then it counts as
# right for the alarm and as wrong for the certificate: both hold whatever its verdict was.
_WITHOUT_TEXTS_S = 3600.0


class Drawn(NamedTuple):
    """A drawn judgment.

    Args:
        audit: Its audit with this one use, whose position is not known yet.
        texts: The texts of the pair, if they are kept and not too long.
    """

    case: Case
    audit: Audit
    texts: str | None

    @property
    def use(self) -> Use:
        """The judgment."""
        return self.audit.uses[0]


class Sampler:
    """Draws each comparison with the same probability, for each criterion and version by itself.

    A comparison is drawn if a keyed hash of its digest, of the criterion and of the version is
    below the rate. So whoever does not know the secret learns from a draw only whether the same
    comparison is drawn under the same criterion by the same version. A higher rate draws all that a
    lower rate draws.

    Args:
        expires_s: Seconds until which a draw waits for its label.
        keeps_texts: Whether the texts of drawn pairs are kept.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        rate: float,
        fingerprint: str,
        expires_s: float,
        keeps_texts: bool = False,
    ) -> None:
        # Copied for each hash, which takes half the time of a new one.
        self._keyed = hmac.new(secret, digestmod="sha256")
        self._rate = rate
        self._fingerprint = fingerprint
        self._expires_s = expires_s
        self._keeps_texts = keeps_texts
        self._limit = round(rate * 2**_BITS)

    def drawn(self, candidates: Sequence[Case], *, at: float) -> list[Drawn]:
        """Returns the draws among some judgments that used a set, in order.

        Labeled examples of the set are never drawn: they say nothing about other traffic. Nor are
        comparisons without a score, which no alpha accepts.
        """
        drawn = (self._drawn(candidate, at) for candidate in candidates)
        return [one for one in drawn if one is not None]

    def _drawn(self, candidate: Case, at: float) -> Drawn | None:
        calibration = candidate.calibration
        assert calibration is not None, "only judgments that used a set are drawn"
        if not isinstance(candidate.score, Score):
            return None
        digest = example_digest(self._fingerprint, candidate.comparison)
        criterion = candidate.criterion
        spelled = _spelled(criterion)
        chance = self._hash("draw", calibration.name, digest, calibration.write_id, *spelled)
        if int.from_bytes(chance[: _BITS // 8], "big") >= self._limit:
            return None
        if digest in calibration.examples:
            return None
        identifier = self._id(calibration.name, digest, candidate.comparison)
        texts = written_texts(identifier, candidate.comparison) if self._keeps_texts else None
        is_too_long = self._keeps_texts and texts is None
        use = Use(
            position=1,
            criterion=criterion,
            write_id=calibration.write_id,
            version=calibration.version,
            accepted=candidate.judgment.verdict != "abstain",
            by=candidate.by,
            at=at,
        )
        audit = Audit(
            id=identifier,
            fingerprint=self._fingerprint,
            digest=digest,
            question=question_digest(candidate.comparison),
            score=candidate.score,
            rate=self._rate,
            # Nobody can read it on the desk, so it must not hold up later labels for long.
            wait_s=min(self._expires_s, _WITHOUT_TEXTS_S) if is_too_long else self._expires_s,
            uses=(use,),
        )
        return Drawn(candidate, audit, texts)

    def _id(self, name: str, digest: str, comparison: Comparison) -> str:
        """Returns 127 bits for the comparison, and one last bit for the order of its responses."""
        of_both = self._hash("id", name, digest)[:16]
        return (of_both[:-1] + bytes([of_both[-1] & 0xFE | comparison.is_reversed])).hex()

    def _hash(self, *parts: str) -> bytes:
        keyed = self._keyed.copy()
        keyed.update("\0".join(parts).encode())
        return keyed.digest()


def _spelled(criterion: Criterion) -> tuple[str, str, str]:
    """Returns guarantee, alpha and delta; each float is spelled by its bits, in one way only."""
    assert criterion.alpha is not None, "only judgments that used a set are drawn"
    delta = "" if criterion.delta is None else float(criterion.delta).hex()
    return criterion.guarantee, float(criterion.alpha).hex(), delta
