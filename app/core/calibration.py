"""A calibration set: labelled scores, and the thresholds that follow from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Guarantee
from app.core.diagnostics import Feasibility, auroc, expected_calibration_error, feasibility
from app.core.examples import Examples
from app.core.examples import LabelledScore as LabelledScore
from app.core.pac import pac_threshold_of_counts, rounded_down
from app.core.preference import FloatArray, Preferences, preference_from_gaps
from app.core.thresholds import ThresholdCurve

STANDARD_ALPHAS = (0.05, 0.10, 0.15, 0.20, 0.25)
STANDARD_DELTA = 0.10
GUARANTEES: tuple[Guarantee, ...] = ("marginal", "pac")
_CURVE_POINTS = 200
# Callers choose alpha and delta, so what is kept of them is bounded.
_KEPT_THRESHOLDS = 1024


class ThresholdRow(NamedTuple):
    """One alpha under one guarantee, with what it does on the calibration set itself.

    `coverage` is the accepted share of the set, `empirical_risk` the observed share of errors
    among them (None if nothing is accepted); `delta` is None for "marginal".
    """

    alpha: float
    guarantee: Guarantee
    delta: float | None
    threshold: float
    coverage: float
    empirical_risk: float | None

    @classmethod
    def of(
        cls,
        curve: ThresholdCurve,
        threshold: float,
        *,
        alpha: float,
        guarantee: Guarantee,
        delta: float | None,
        undecided: int,
        off_task: int = 0,
    ) -> "ThresholdRow":
        """Says what a threshold, in nats, does on the points of the curve and those off task."""
        n = curve.n + off_task
        accepted, errors = curve.accepted_at(threshold, undecided=undecided)
        return cls(
            alpha=alpha,
            guarantee=guarantee,
            delta=delta,
            threshold=threshold,
            coverage=accepted / n if n else 0.0,
            empirical_risk=errors / accepted if accepted else None,
        )

    @property
    def feasible(self) -> bool:
        """Whether anything can be accepted at this alpha."""
        return self.threshold > -np.inf


class CurvePoint(NamedTuple):
    """One point of the risk-coverage curve of a calibration set."""

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float


@dataclass(frozen=True)
class Calibration:
    """One version of a calibration set; nothing in it changes, thresholds are computed once.

    Args:
        name: Of the set.
        write_id: Of the write that made this version; no other write has it.
        version: Grows by one with every write.
        judge: The judge's name.
        fingerprint: Of the judge that scored the examples.
        label_noise: Probability in [0, 0.5) that a label is flipped.
        examples: Digest of the comparison -> labelled score.
        min_label_mass: In [0, 1). An example with less is off task: never accepted.
        changed_at: When this version was made, in seconds since 1970; None where nobody noted it.

    Thresholds and curve are those of the examples on task. An example off task is accepted at no
    threshold, so S = 0 in eq. scope_condition and it adds nothing to the sum; counted by its
    uncertainty it would stand for judgments that nobody gets. Given that they are on task, examples
    and judgments are as exchangeable as before. `n`, `accuracy`, `auroc`,
    `expected_calibration_error`, `position_flips`, `mean_label_mass` and the denominator of every
    coverage are of all examples: they describe the judge.
    """

    name: str
    write_id: str
    version: int
    judge: str
    fingerprint: str
    label_noise: float
    examples: Mapping[str, LabelledScore]
    min_label_mass: float = 0.0
    changed_at: float | None = None

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.examples)

    @cached_property
    def table(self) -> Examples:
        """The examples in columns; `examples` itself where it is that already."""
        return Examples.of(self.examples)

    @cached_property
    def preferences(self) -> Preferences:
        """What the judge prefers in each example, in the order of `examples`."""
        numbers = self.table.numbers
        return preference_from_gaps(numbers[:, 0], numbers[:, 1])

    @cached_property
    def error(self) -> NDArray[np.bool_]:
        """Shape (n,). True where the judge disagrees with the label or has no preference."""
        p_bar = self.preferences.p_bar
        return np.where(self.table.label_a, p_bar <= 0.5, p_bar >= 0.5)

    @cached_property
    def uncertainty(self) -> FloatArray:
        """Shape (n,). s(x) in nats."""
        return self.preferences.entropy

    @cached_property
    def on_task(self) -> NDArray[np.bool_]:
        """Shape (n,). True where the judge says enough of the labels to be taken at its word."""
        return ~(self.table.numbers[:, 2] < self.min_label_mass)

    @cached_property
    def curve(self) -> ThresholdCurve:
        """SCOPE's thresholds for every alpha."""
        uncertainty, error = self.uncertainty[self.on_task], self.error[self.on_task]
        return ThresholdCurve.fit(uncertainty, error, self.label_noise)

    @property
    def accuracy(self) -> float | None:
        """Share of examples on which judge and label agree; None without examples."""
        return float(1.0 - self.error.mean()) if self.n else None

    @property
    def auroc(self) -> float | None:
        """Of confidence for being right; None if all are right, or all wrong."""
        return auroc(self.preferences.confidence, ~self.error)

    @property
    def expected_calibration_error(self) -> float | None:
        """Of confidence; None without examples."""
        return expected_calibration_error(self.preferences.confidence, ~self.error)

    @property
    def position_flips(self) -> float | None:
        """Share of examples in which the two orders prefer different responses."""
        if not self.n:
            return None
        p_fwd, p_rev = self.preferences.p_fwd, self.preferences.p_rev
        return float(((p_fwd - 0.5) * (p_rev - 0.5) < 0.0).mean())

    @property
    def mean_label_mass(self) -> float | None:
        """Mean probability on the two labels, of the order in which it is smaller."""
        if not self.n:
            return None
        # One by one: other threads have their turn between two.
        return math.fsum(float(mass) for mass in self.table.numbers[:, 2]) / self.n

    def threshold(self, alpha: float, guarantee: Guarantee, delta: float | None) -> float:
        """lambda_hat: in nats, -inf if infeasible, ln 2 to accept everything.

        With "pac", alpha and delta are rounded down to four significant digits.
        """
        # Several threads may ask at once: each reads the dictionary once and writes it once.
        kept = self.kept_threshold(alpha, guarantee, delta)
        if kept is not None:
            return kept
        if guarantee == "marginal":
            threshold = self.curve.threshold(alpha)
        else:
            assert delta is not None, "pac needs a delta"
            threshold = pac_threshold_of_counts(
                self.curve.scores,
                self.curve.accepted,
                self.curve.errors,
                alpha=rounded_down(alpha),
                delta=rounded_down(delta),
                label_noise=self.label_noise,
            )
        if len(self._thresholds) >= _KEPT_THRESHOLDS:
            self._thresholds.clear()
        self._thresholds[_asked(alpha, guarantee, delta)] = threshold
        return threshold

    def kept_threshold(
        self, alpha: float, guarantee: Guarantee, delta: float | None
    ) -> float | None:
        """The threshold, if it has been computed."""
        return self._thresholds.get(_asked(alpha, guarantee, delta))

    @cached_property
    def _thresholds(self) -> dict[tuple[float, Guarantee, float | None], float]:
        return {}

    def row(self, alpha: float, guarantee: Guarantee, delta: float | None) -> ThresholdRow:
        """The threshold of one alpha and what it does on the calibration set itself."""
        threshold = self.threshold(alpha, guarantee, delta)
        return ThresholdRow.of(
            self.curve,
            threshold,
            alpha=alpha,
            guarantee=guarantee,
            delta=delta,
            undecided=self.undecided,
            off_task=self.n - self.curve.n,
        )

    def feasibility(self, row: ThresholdRow) -> Feasibility:
        """What would make an alpha feasible if the judge goes on as in these examples."""
        return feasibility(
            self.curve,
            row.alpha,
            row.guarantee,
            row.delta,
            off_task=self.n - self.curve.n,
        )

    @cached_property
    def infeasible(self) -> tuple[tuple[ThresholdRow, Feasibility], ...]:
        """The standard rows at which nothing is accepted, and what would change that."""
        rows = [row for row in self.standard_rows if not row.feasible]
        return tuple((row, self.feasibility(row)) for row in rows)

    @cached_property
    def undecided(self) -> int:
        """Examples on task on which the judge has no preference."""
        return int((self.on_task & (self.preferences.p_bar == 0.5)).sum())

    @cached_property
    def standard_rows(self) -> tuple[ThresholdRow, ...]:
        """Both guarantees at the standard alphas, "pac" at the standard delta."""
        return tuple(
            self.row(alpha, guarantee, STANDARD_DELTA if guarantee == "pac" else None)
            for guarantee in GUARANTEES
            for alpha in STANDARD_ALPHAS
        )

    @property
    def kept_standard_rows(self) -> tuple[ThresholdRow, ...] | None:
        """The standard rows if they were computed already; None before that."""
        # `cached_property` keeps its value in the dict of the instance.
        rows: tuple[ThresholdRow, ...] | None = self.__dict__.get("standard_rows")
        return rows

    @cached_property
    def risk_coverage(self) -> tuple[CurvePoint, ...]:
        """The risk-coverage curve at 200 scores at most, evenly spread over the ranks."""
        curve = self.curve
        count = min(len(curve.scores), _CURVE_POINTS)
        points = []
        for i in np.unique(np.linspace(0, len(curve.scores) - 1, count).astype(int)):
            score = float(curve.scores[i])
            accepted, errors = curve.accepted_at(score, undecided=self.undecided)
            if accepted:
                risk_level = float(curve.risk_levels[i])
                points.append(CurvePoint(score, accepted / self.n, errors / accepted, risk_level))
        return tuple(points)


def _asked(
    alpha: float, guarantee: Guarantee, delta: float | None
) -> tuple[float, Guarantee, float | None]:
    """The name of a threshold, the same for all alphas and deltas that are rounded to the same."""
    if guarantee == "marginal" or delta is None:
        return alpha, guarantee, delta
    return rounded_down(alpha), guarantee, rounded_down(delta)
