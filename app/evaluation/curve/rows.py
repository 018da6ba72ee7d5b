"""The rows of `scope-judge curve`: coverage and risk of each alpha under both guarantees."""

from collections.abc import Sequence
from typing import NamedTuple

from app.core.calibration import GUARANTEES, ThresholdRow
from app.core.comparison import Guarantee
from app.core.diagnostics import Feasibility, feasibility
from app.core.pac import pac_threshold
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labelled_scores import LabelledScores


class CurveRow(NamedTuple):
    """One alpha under one guarantee.

    Args:
        threshold: Threshold, coverage and empirical risk.
        feasibility: Changes that make an infeasible alpha feasible; None for a feasible alpha.
    """

    threshold: ThresholdRow
    feasibility: Feasibility | None


def curve_rows(
    scores: LabelledScores, alphas: Sequence[float], *, delta: float, label_noise: float
) -> list[CurveRow]:
    """A row for each guarantee and alpha, in that order.

    Args:
        scores: Scores of a judge on labelled pairs.
        alphas: Levels, each in (0, 1).
        delta: Level of "pac", in (0, 1).
        label_noise: Probability in [0, 0.5) that a label is flipped.
    """
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error, label_noise)
    rows = threshold_rows(scores, alphas, delta=delta, label_noise=label_noise)
    return [
        CurveRow(
            row, None if row.feasible else feasibility(curve, row.alpha, row.guarantee, row.delta)
        )
        for row in rows
    ]


def threshold_rows(
    scores: LabelledScores, alphas: Sequence[float], *, delta: float, label_noise: float
) -> list[ThresholdRow]:
    """The rows of `curve_rows` without their feasibility, which is slower to compute."""
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error, label_noise)

    def row(alpha: float, guarantee: Guarantee) -> ThresholdRow:
        if guarantee == "marginal":
            threshold = curve.threshold(alpha)
        else:
            threshold = pac_threshold(
                scores.uncertainty, scores.error, alpha=alpha, delta=delta, label_noise=label_noise
            )
        return ThresholdRow.of(
            curve,
            threshold,
            alpha=alpha,
            guarantee=guarantee,
            delta=delta if guarantee == "pac" else None,
            undecided=scores.undecided,
        )

    return [row(alpha, guarantee) for guarantee in GUARANTEES for alpha in alphas]
