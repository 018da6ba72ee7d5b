"""The figure of `scope-judge curve`."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from app.core.calibration import GUARANTEES, STANDARD_ALPHAS, ThresholdRow
from app.core.comparison import Guarantee
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labelled_scores import LabelledScores
from app.evaluation.curve.rows import threshold_rows

_ALPHAS = np.arange(4, 121) / 400  # 0.01 to 0.30
# Blue and vermilion of Okabe and Ito (2008): distinguishable with any colour vision.
_COLOURS: dict[Guarantee, str] = {"marginal": "#0072B2", "pac": "#D55E00"}
_MARKERS: dict[Guarantee, str] = {"marginal": "o", "pac": "s"}
_GREY = "#777777"


def write_curve_figure(
    scores: LabelledScores, file: Path, *, delta: float, label_noise: float
) -> None:
    """Writes risk against coverage, and coverage against alpha.

    Args:
        scores: Scores of a judge on labelled pairs.
        file: File to write; its ending, .png or .svg, chooses the format.
        delta: Level of "pac", in (0, 1).
        label_noise: Probability in [0, 0.5) that a label is flipped.

    Raises:
        OSError: The file cannot be written.
    """
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    chosen = threshold_rows(scores, STANDARD_ALPHAS, delta=delta, label_noise=label_noise)
    fine = threshold_rows(scores, _ALPHAS.tolist(), delta=delta, label_noise=label_noise)
    _draw_risk(left, scores, chosen, label_noise)
    _draw_coverage(right, fine, delta)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e5e5e5", linewidth=0.6)
        axes.set_axisbelow(True)
    # Without a date and random ids, equal scores write equal bytes.
    metadata = {"Date": None} if file.suffix.lower() == ".svg" else {}
    with rc_context({"svg.hashsalt": "scope-judge"}):
        figure.savefig(file, dpi=130, metadata=metadata)


def _draw_risk(
    axes: Axes, scores: LabelledScores, rows: list[ThresholdRow], label_noise: float
) -> None:
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error)
    counts = [curve.accepted_at(score, undecided=scores.undecided) for score in curve.scores]
    coverages = [accepted / scores.n for accepted, _ in counts if accepted]
    risks = [errors / accepted for accepted, errors in counts if accepted]
    few = "." if len(risks) <= 30 else None
    axes.plot(coverages, risks, color=_GREY, linewidth=1.2, marker=few, zorder=1)
    # Below a coverage of 0.1 the risk is that of a few points, often 0 or 1: ignored for the scale.
    scaling = [risk for coverage, risk in zip(coverages, risks, strict=True) if coverage >= 0.1]
    for guarantee in GUARANTEES:
        accepted = [
            (row.coverage, row.empirical_risk)
            for row in rows
            if row.guarantee == guarantee and row.empirical_risk is not None
        ]
        axes.scatter(
            [coverage for coverage, _ in accepted],
            [risk for _, risk in accepted],
            color=_COLOURS[guarantee],
            marker=_MARKERS[guarantee],
            s=34 if guarantee == "marginal" else 20,
            zorder=2,
            label=f"{guarantee}, alpha 0.05 to 0.25",
        )
    axes.set(
        xlabel="coverage (share of pairs accepted)",
        ylabel="share of errors among the accepted" + (" (noisy labels)" if label_noise else ""),
        title=f"Risk of the accepted pairs, n = {scores.n}",
        xlim=(0, 1.02),
        ylim=(0, 1.25 * max([*scaling, 0.02])),
    )
    axes.legend(frameon=False, loc="best")


def _draw_coverage(axes: Axes, rows: list[ThresholdRow], delta: float) -> None:
    for guarantee in GUARANTEES:
        found = [row for row in rows if row.guarantee == guarantee]
        axes.plot(
            [row.alpha for row in found],
            [row.coverage for row in found],
            color=_COLOURS[guarantee],
            drawstyle="steps-post",
            linewidth=1.6,
            label=guarantee if guarantee == "marginal" else f"pac, delta {delta:g}",
        )
    axes.set(
        xlabel="alpha (largest share of errors)",
        ylabel="coverage",
        title="Coverage at each alpha",
        xlim=(0, 0.3),
        ylim=(0, 1.02),
    )
    axes.legend(frameon=False, loc="best")
