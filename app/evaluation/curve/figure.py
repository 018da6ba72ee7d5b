"""The figure of `scope-judge curve`: risk by coverage, and coverage by alpha and by labels."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.core.assessment import Assessment, recommendation
from app.core.calibration import GUARANTEES
from app.core.comparison import Guarantee
from app.core.shares import clopper_pearson
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labeled_scores import LabeledScores
from app.evaluation.curve.labels import coverage_by_labels
from app.evaluation.curve.rows import threshold_rows
from app.files.replacing import replacing

_USUAL_ALPHA = 0.10
# Blue and vermilion of Okabe and Ito (2008): distinguishable with any color vision.
_STYLES: dict[Guarantee, dict[str, Any]] = {
    "marginal": {"color": "#0072B2", "marker": "o"},
    "pac": {"color": "#D55E00", "marker": "s"},
}


def write_curve_figure(scores: LabeledScores, assessment: Assessment, file: Path) -> None:
    """Writes the figure as .png or .svg, by the ending of the file.

    Raises:
        OSError: The file cannot be written.
    """
    kind = file.suffix.lower().removeprefix(".")
    with replacing(file) as image:
        curve_figure(scores, assessment).savefig(image, format=kind, dpi=130)


def curve_figure(scores: LabeledScores, assessment: Assessment) -> Figure:
    """The recommendation, and three panels below it."""
    figure = Figure(figsize=(13.0, 5.2), layout="constrained")
    figure.suptitle(textwrap.fill(recommendation(assessment), 125), fontsize=11)
    risk, coverage, labels = figure.subplots(1, 3)
    _draw_risk(risk, scores, assessment)
    _draw_coverage(coverage, scores, assessment)
    _draw_labels(labels, scores, assessment)
    for axes in (risk, coverage, labels):
        axes.grid(color="#e5e5e5", linewidth=0.6)
    coverage.legend(frameon=False)
    return figure


def _draw_risk(axes: Axes, scores: LabeledScores, assessment: Assessment) -> None:
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error)
    tallies = [curve.accepted_at(score, undecided=scores.undecided) for score in curve.scores]
    counts = np.array([tally for tally in tallies if tally[0]], dtype=np.int64).reshape(-1, 2)
    coverages, risks = counts[:, 0] / scores.n, counts[:, 1] / counts[:, 0]
    low, high = clopper_pearson(counts[:, 1], counts[:, 0], tail=0.025)
    axes.fill_between(coverages, low, high, color="#d9d9d9", linewidth=0, label="95% interval")
    axes.plot(coverages, risks, color="#777777")
    for row in assessment.rows:
        if row.empirical_risk is not None:
            axes.plot(row.coverage, row.empirical_risk, **_STYLES[row.guarantee])
            axes.annotate(f"{row.alpha:g}", (row.coverage, row.empirical_risk), fontsize=8)
    # Below a coverage of 0.1 the risk is that of a few points, often 0 or 1: ignored for the scale.
    top = 1.15 * max([*high[coverages >= 0.1].tolist(), 0.02])
    axes.set(xlabel="coverage", ylabel="risk", title=f"n = {scores.n}", xlim=(0, 1), ylim=(0, top))


def _draw_coverage(axes: Axes, scores: LabeledScores, assessment: Assessment) -> None:
    alphas = sorted({row.alpha for row in assessment.rows})
    largest = max(0.3, alphas[-1])
    rows = threshold_rows(
        scores, np.linspace(0.01, largest, 117).tolist(), delta=_delta(assessment)
    )
    for guarantee in GUARANTEES:
        line = [(row.alpha, row.coverage) for row in rows if row.guarantee == guarantee]
        style = _STYLES[guarantee]
        axes.step(*zip(*line, strict=True), where="post", color=style["color"], label=guarantee)
        marked = [
            (row.alpha, row.coverage) for row in assessment.rows if row.guarantee == guarantee
        ]
        axes.plot(*zip(*marked, strict=True), linestyle="", **style)
    axes.set(xlabel="alpha", ylabel="coverage", title="by alpha", ylim=(-0.03, 1.03))


def _draw_labels(axes: Axes, scores: LabeledScores, assessment: Assessment) -> None:
    alphas = sorted({row.alpha for row in assessment.rows})
    alpha = _USUAL_ALPHA if _USUAL_ALPHA in alphas else alphas[0]
    rows = coverage_by_labels(scores, alpha=alpha, delta=_delta(assessment))
    for guarantee in GUARANTEES:
        line = [(row.labels, row.coverage) for row in rows if row.guarantee == guarantee]
        axes.plot(*zip(*line, strict=True), **_STYLES[guarantee])
    axes.set(xlabel="labels", ylabel="mean coverage", title=f"by labels, alpha {alpha:g}")
    axes.set(ylim=(-0.03, 1.03))


def _delta(assessment: Assessment) -> float:
    return next(row.delta for row in assessment.rows if row.delta is not None)
