"""A calibration set: its labelled scores, and the thresholds computed from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core.assessment import AlphaInterval
from app.core.comparison import STANDARD_ALPHAS as STANDARD_ALPHAS
from app.core.comparison import STANDARD_DELTA as STANDARD_DELTA
from app.core.comparison import Guarantee
from app.core.diagnostics import (
    Feasibility,
    auroc,
    expected_calibration_error,
    feasibility,
    feasible_alphas,
)
from app.core.examples import Examples
from app.core.examples import LabelledScore as LabelledScore
from app.core.pac import pac_threshold_of_counts, rounded_down
from app.core.preference import FloatArray, Preferences, preference_from_gaps
from app.core.thresholds import ThresholdCurve

GUARANTEES: tuple[Guarantee, ...] = ("marginal", "pac")
_CURVE_POINTS = 200
# Callers choose alpha and delta, so the number of cached thresholds is bounded.
_KEPT_THRESHOLDS = 1024


class ThresholdRow(NamedTuple):
    """The threshold of one alpha under one guarantee, and its effect on the calibration set.

    Args:
        alpha: Largest share of errors among accepted verdicts, in (0, 1).
        guarantee: "marginal" or "pac".
        delta: In (0, 1) for "pac"; None for "marginal".
        threshold: lambda_hat in nats; -inf if infeasible.
        coverage: Accepted share of the calibration set, in [0, 1].
        empirical_risk: Observed share of errors among the accepted examples; None if no example is
            accepted.
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
        """Computes the row of a threshold in nats, on the curve and the off-task examples."""
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
        """Whether any judgment can be accepted at this alpha."""
        return self.threshold > -np.inf


class CurvePoint(NamedTuple):
    """One point of the risk-coverage curve of a calibration set.

    Args:
        uncertainty: Threshold in nats.
        coverage: Accepted share of the set, in [0, 1].
        empirical_risk: Observed share of errors among the accepted examples.
        risk_level: Smallest alpha whose threshold reaches this uncertainty.
    """

    uncertainty: float
    coverage: float
    empirical_risk: float
    risk_level: float


@dataclass(frozen=True)
class Calibration:
    """One immutable version of a calibration set; each threshold is computed once.

    Args:
        name: Name of the calibration set.
        write_id: Unique id of the write that made this version.
        version: Number of the version; it grows by one with every write.
        judge: Name of the judge.
        fingerprint: Fingerprint of the judge that scored the examples.
        label_noise: Probability in [0, 0.5) that a label is flipped.
        examples: Digest of the comparison -> labelled score.
        min_label_mass: In [0, 1). An example with less label mass is off task: never accepted.
        changed_at: Time at which this version was made, in seconds since 1970; None in sets of
            older releases.

    Thresholds and curve use only the examples on task. No threshold accepts an off-task example, so
    S = 0 in SCOPE's eq. 5 (scope_condition), and the example adds nothing to the sum. Counting it
    by its uncertainty would represent judgments that no caller gets. Among on-task comparisons,
    examples and judgments remain exchangeable. All examples count in `n`, `accuracy`, `auroc`,
    `expected_calibration_error`, `position_flips`, `mean_label_mass` and the denominator of each
    coverage, because these figures describe the judge.
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
        """The examples in columns; `examples` itself if it has columns already."""
        return Examples.of(self.examples)

    @cached_property
    def preferences(self) -> Preferences:
        """The preferences of the judge, in the order of `examples`."""
        numbers = self.table.numbers
        return preference_from_gaps(numbers[:, 0], numbers[:, 1])

    @cached_property
    def error(self) -> NDArray[np.bool_]:
        """Shape (n,). True where the judge disagrees with the label or has no preference."""
        p_bar = self.preferences.p_bar
        return np.where(self.table.label_a, p_bar <= 0.5, p_bar >= 0.5)

    @cached_property
    def uncertainty(self) -> FloatArray:
        """Shape (n,). Uncertainty s(x) of each example, in nats."""
        return self.preferences.entropy

    @cached_property
    def on_task(self) -> NDArray[np.bool_]:
        """Shape (n,). True where the label mass is at least `min_label_mass`."""
        return ~(self.table.numbers[:, 2] < self.min_label_mass)

    @cached_property
    def curve(self) -> ThresholdCurve:
        """SCOPE's threshold for every alpha, from the examples on task."""
        uncertainty, error = self.uncertainty[self.on_task], self.error[self.on_task]
        return ThresholdCurve.fit(uncertainty, error, self.label_noise)

    @property
    def accuracy(self) -> float | None:
        """Share of examples on which judge and label agree; None without examples."""
        return float(1.0 - self.error.mean()) if self.n else None

    @property
    def auroc(self) -> float | None:
        """AUROC of confidence for being right; None if all verdicts are right or all are wrong."""
        return auroc(self.preferences.confidence, ~self.error)

    @property
    def expected_calibration_error(self) -> float | None:
        """Expected calibration error of the confidence, in [0, 1]; None without examples."""
        return expected_calibration_error(self.preferences.confidence, ~self.error)

    @property
    def position_flips(self) -> float | None:
        """Share of examples in which the two orders prefer different responses."""
        if not self.n:
            return None
        return self.preferences.position_flips

    @property
    def mean_label_mass(self) -> float | None:
        """Mean label mass, from the order with the smaller one; None without examples."""
        if not self.n:
            return None
        # One number at a time, so that other threads can run in between.
        return math.fsum(float(mass) for mass in self.table.numbers[:, 2]) / self.n

    def threshold(self, alpha: float, guarantee: Guarantee, delta: float | None) -> float:
        """Returns lambda_hat in nats; -inf if infeasible, ln 2 to accept everything.

        With "pac", alpha and delta are rounded down to four significant digits.
        """
        # Safe in several threads at once: each reads the dictionary once and writes it once.
        kept = self.kept_threshold(alpha, guarantee, delta)
        if kept is not None:
            return kept
        threshold = threshold_on(self.curve, alpha, guarantee, delta)
        if len(self._thresholds) >= _KEPT_THRESHOLDS:
            self._thresholds.clear()
        self._thresholds[_cache_key(alpha, guarantee, delta)] = threshold
        return threshold

    def kept_threshold(
        self, alpha: float, guarantee: Guarantee, delta: float | None
    ) -> float | None:
        """Returns the threshold if it was computed already; None before that."""
        return self._thresholds.get(_cache_key(alpha, guarantee, delta))

    @cached_property
    def _thresholds(self) -> dict[tuple[float, Guarantee, float | None], float]:
        return {}

    def row(self, alpha: float, guarantee: Guarantee, delta: float | None) -> ThresholdRow:
        """Returns the threshold of one alpha and its effect on the calibration set."""
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
        """Returns the ways to make an alpha feasible, given the error rates of these examples."""
        return feasibility(
            self.curve,
            row.alpha,
            row.guarantee,
            row.delta,
            off_task=self.n - self.curve.n,
        )

    @cached_property
    def infeasible(self) -> tuple[tuple[ThresholdRow, Feasibility], ...]:
        """The infeasible standard rows, each with the ways to make its alpha feasible."""
        rows = [row for row in self.standard_rows if not row.feasible]
        return tuple((row, self.feasibility(row)) for row in rows)

    @cached_property
    def feasible_alphas(self) -> Mapping[Guarantee, tuple[AlphaInterval, ...]]:
        """All feasible alphas of each guarantee, "pac" at the standard delta."""
        return {each: feasible_alphas(self.curve, each, STANDARD_DELTA) for each in GUARANTEES}

    @cached_property
    def undecided(self) -> int:
        """Number of on-task examples without a preference of the judge."""
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


def threshold_on(
    curve: ThresholdCurve, alpha: float, guarantee: Guarantee, delta: float | None
) -> float:
    """Returns lambda_hat in nats on a curve, as `Calibration.threshold` does."""
    if guarantee == "marginal":
        return curve.threshold(alpha)
    assert delta is not None, "pac needs a delta"
    return pac_threshold_of_counts(
        curve.scores,
        curve.accepted,
        curve.errors,
        alpha=rounded_down(alpha),
        delta=rounded_down(delta),
        label_noise=curve.label_noise,
    )


def _cache_key(
    alpha: float, guarantee: Guarantee, delta: float | None
) -> tuple[float, Guarantee, float | None]:
    """Returns the cache key of a threshold; "pac" rounds alpha and delta down to four digits."""
    if guarantee == "marginal" or delta is None:
        return alpha, guarantee, delta
    return rounded_down(alpha), guarantee, rounded_down(delta)
