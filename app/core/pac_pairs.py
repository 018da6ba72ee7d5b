"""The pairs that "pac" counts, sorted by uncertainty, and which of them to label next."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.pac import PacTests, pac_tests, rounded_down
from app.core.preference import FloatArray
from app.core.thresholds import ThresholdCurve


class LabelsNeeded(NamedTuple):
    """The labels that one alpha and delta still need.

    Args:
        threshold: In nats, as of `pac_threshold` with all labels; None while labels are missing.
        places: Indices of the pairs to label next, in the order of rising uncertainty; all that the
            next test needs. Empty once the threshold is known.
    """

    threshold: float | None
    places: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PacPairs:
    """Sorted pairs of which some may have no label yet.

    Args:
        curve: Counts of all pairs; a pair without a label counts as no error.
        drawn: Number of pairs that were drawn before labels were seen. It is larger than the number
            of the pairs here if people found some equal.
        labelled: Number of leading scores of the curve up to which all pairs have a label.
        unlabelled: Shape (u,). Indices of the pairs without a label, by rising uncertainty.
        unlabeled_scores: Shape (u,). Uncertainties of those pairs, ascending.
    """

    curve: ThresholdCurve
    drawn: int
    labelled: int
    unlabelled: NDArray[np.int64]
    unlabeled_scores: FloatArray

    @classmethod
    def fit(
        cls,
        uncertainty: ArrayLike,
        error: ArrayLike,
        labelled: ArrayLike,
        *,
        drawn: int | None = None,
        curve: ThresholdCurve | None = None,
    ) -> "PacPairs":
        """Sorts the pairs.

        Args:
            uncertainty: Shape (n,). s(x) of each pair, in nats.
            error: Shape (n,). True where the judge disagrees with the label; False without a label.
            labelled: Shape (n,). False for pairs without a label.
            drawn: Number of pairs that were drawn before labels were seen; None for n.
            curve: The curve of these pairs, if it is known.

        Raises:
            ValueError: Shapes differ or a score is NaN.
        """
        score = np.asarray(uncertainty, dtype=np.float64)
        if curve is None:
            curve = ThresholdCurve.fit(score, error)
        missing = np.flatnonzero(~np.asarray(labelled, dtype=bool))
        missing = missing[np.argsort(score[missing], kind="stable")]
        scores = score[missing]
        ready = np.searchsorted(curve.scores, scores[0]) if len(scores) else len(curve.scores)
        return cls(curve, len(score) if drawn is None else drawn, int(ready), missing, scores)

    def tests(self, alpha: float, delta: float) -> PacTests:
        """Runs the tests of "pac"; alpha and delta are rounded down to four significant digits."""
        return pac_tests(
            self.curve.scores,
            self.curve.accepted,
            self.curve.errors,
            alpha=rounded_down(alpha),
            delta=rounded_down(delta),
            labelled=self.labelled,
            drawn=self.drawn,
        )

    def needed(self, alpha: float, delta: float) -> LabelsNeeded:
        """Returns the threshold, or else the pairs that must be labeled before the next test.

        Labeling exactly these pairs again and again, until there is a threshold, gives the
        threshold that all labels would give. It needs the fewest labels in that order.

        Args:
            alpha: In (0, 1); choose it before the first label is seen.
            delta: In (0, 1); choose it before the first label is seen.
        """
        threshold, score = self.tests(alpha, delta)
        if score is None:
            return LabelsNeeded(threshold, self.unlabelled[:0])
        last = int(np.searchsorted(self.unlabeled_scores, score, side="right"))
        return LabelsNeeded(None, self.unlabelled[:last])
