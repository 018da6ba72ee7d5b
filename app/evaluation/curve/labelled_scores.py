"""Labelled pairs that a judge has already judged, as points for a threshold."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.core.diagnostics import auroc
from app.core.errors import InvalidRequestError
from app.core.preference import LN2, FloatArray
from app.evaluation.judgments.jsonl import Skipped, read_judgments
from app.evaluation.methods import METHODS


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """How uncertain a judge was, and where it was wrong.

    Args:
        uncertainty: Shape (n,). s(x) in nats, within [0, ln 2].
        error: Shape (n,). True where the judge disagrees with the label or has no preference.
        ties: Lines with label "tie", left out.
        skipped: Lines without a label or a signal, left out: what is missing is never 0.5.
    """

    uncertainty: FloatArray
    error: NDArray[np.bool_]
    ties: int
    skipped: tuple[Skipped, ...]

    @property
    def n(self) -> int:
        """Number of labelled pairs, at least 1."""
        return len(self.error)

    @property
    def undecided(self) -> int:
        """Pairs on which the judge has no preference: errors at ln 2, never accepted."""
        return int((self.error & (self.uncertainty >= LN2)).sum())

    @property
    def accuracy(self) -> float:
        """Share of pairs on which judge and label agree."""
        return float(1.0 - self.error.mean())

    @property
    def auroc(self) -> float | None:
        """Of confidence for being right; None if all are right, or all wrong."""
        return auroc(-self.uncertainty, ~self.error)


def read_labelled_scores(file: Path) -> LabelledScores:
    """Reads JSONL, gzipped or not, of pairs that a judge has judged and people have labelled.

    Each line is as `read_judgments` reads it; here it needs a signal of both orders, or the scores
    of a reward model.

    Raises:
        InvalidRequestError: The file cannot be read, a line is not as above, or no line is usable.
    """
    judged = read_judgments(file)
    scores = METHODS["bpe"].score(judged.pairs)
    if not len(scores.pairs):
        raise InvalidRequestError(
            f"{file} has no labelled pair: each line needs label (A or B), and p_fwd and p_rev, or "
            "score_a and score_b"
        )
    unscored = set(range(len(judged.pairs))) - set(scores.pairs.tolist())
    unusable = [Skipped(judged.lines[i], "judgment of both orders") for i in sorted(unscored)]
    skipped = tuple(sorted([*judged.skipped, *unusable]))
    return LabelledScores(scores.uncertainty, scores.error, judged.ties, skipped)
