"""The scores of a judge on labeled pairs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.core.diagnostics import auroc
from app.core.errors import InvalidRequestError
from app.core.preference import LN2, FloatArray
from app.evaluation.judgments.jsonl import Judged
from app.evaluation.methods import METHODS, preferences_of
from app.files.checking import LabelReport, RowPlace


@dataclass(frozen=True, kw_only=True, eq=False)
class LabeledScores:
    """The uncertainty and the error of a judge on labeled pairs.

    Args:
        uncertainty: Shape (n,). s(x) in nats, within [0, ln 2].
        error: Shape (n,). True where the judge disagrees with the label or has no preference.
        report: The outcome of the check of all rows. A missing answer is never read as 0.5.
        position_flips: Share of pairs in which the two orders prefer different responses; None for
            a reward model, which has no order.
    """

    uncertainty: FloatArray
    error: NDArray[np.bool_]
    report: LabelReport = field(default_factory=LabelReport)
    position_flips: float | None = None

    @property
    def n(self) -> int:
        """Number of labeled pairs, at least 1."""
        return len(self.error)

    @property
    def undecided(self) -> int:
        """Number of pairs without a preference: they are errors at ln 2, and never accepted."""
        return int((self.error & (self.uncertainty >= LN2)).sum())

    @property
    def accuracy(self) -> float:
        """Share of pairs on which judge and label agree."""
        return float(1.0 - self.error.mean())

    @property
    def auroc(self) -> float | None:
        """AUROC of confidence for right verdicts; None if all are right or all are wrong."""
        return auroc(-self.uncertainty, ~self.error)


def labeled_scores_of(judged: Judged, source: str) -> LabeledScores:
    """The scores of judged pairs; a row without a signal of the judge is left out.

    Raises:
        InvalidRequestError: No row is usable, or the rows have the answers of several judges.
    """
    if len(judged.judges) > 1:
        listed = ", ".join(sorted(name or "an unnamed one" for name in judged.judges))
        raise InvalidRequestError(
            f"{source} has answers of several judges ({listed}): give the answers of one judge"
        )
    scores = METHODS["bpe"].score(judged.pairs)
    if not len(scores.pairs):
        raise InvalidRequestError(
            f"{source} has no labeled pair: each row needs a label (A or B), and p_fwd and p_rev, "
            f"or score_a and score_b; there are {judged.report.sentence}"
        )
    unscored = set(range(len(judged.pairs))) - set(scores.pairs.tolist())
    unusable = [
        RowPlace(place=judged.places[i], detail="no judgment of both orders")
        for i in sorted(unscored)
    ]
    used = [judged.pairs[i] for i in scores.pairs]
    flips = preferences_of(used).position_flips if used[0].has_both_orders else None
    return LabeledScores(
        uncertainty=scores.uncertainty,
        error=scores.error,
        report=judged.report.without(unusable),
        position_flips=flips,
    )
