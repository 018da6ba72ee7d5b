"""The scores of a judge on labelled pairs, read from a file of judged pairs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.core.diagnostics import auroc
from app.core.errors import InvalidRequestError
from app.core.preference import LN2, FloatArray
from app.evaluation.judgments.jsonl import Skipped, read_judgments
from app.evaluation.methods import METHODS, preferences_of


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """The uncertainty and the error of a judge on labelled pairs.

    Args:
        uncertainty: Shape (n,). s(x) in nats, within [0, ln 2].
        error: Shape (n,). True where the judge disagrees with the label or has no preference.
        ties: Number of lines with label "tie", which are left out.
        skipped: Lines without a label or a signal. A missing answer is never read as 0.5.
        position_flips: Share of pairs in which the two orders prefer different responses; None for
            a reward model, which has no order.
    """

    uncertainty: FloatArray
    error: NDArray[np.bool_]
    ties: int
    skipped: tuple[Skipped, ...]
    position_flips: float | None = None

    @property
    def n(self) -> int:
        """Number of labelled pairs, at least 1."""
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


def read_labelled_scores(file: Path) -> LabelledScores:
    """Reads JSONL, gzipped or not, of pairs that a judge has judged and people have labelled.

    The lines have the format of `read_judgments`. A line without a signal of both orders and
    without the scores of a reward model is left out.

    Raises:
        InvalidRequestError: The file cannot be read, a line has another format, or no line is
            usable.
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
    used = [judged.pairs[i] for i in scores.pairs]
    flips = None if used[0].scores is not None else preferences_of(used).position_flips
    return LabelledScores(scores.uncertainty, scores.error, judged.ties, skipped, flips)
