"""The figure of `scope-judge curve`, for people who have read nothing else."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from app.core.assessment import AlphaRow, Assessment, recommendation, share_interval
from app.core.calibration import GUARANTEES
from app.core.comparison import Guarantee
from app.core.preference import FloatArray
from app.core.shares import clopper_pearson
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve.labelled_scores import LabelledScores
from app.evaluation.curve.labels import LabelsRow, coverage_by_labels
from app.evaluation.curve.rows import threshold_rows
from app.files.replacing import replacing

_LARGEST_ALPHA = 0.30
_USUAL_ALPHA = 0.10
# Blue and vermilion of Okabe and Ito (2008): distinguishable with any colour vision.
_COLOURS: dict[Guarantee, str] = {"marginal": "#0072B2", "pac": "#D55E00"}
_MARKERS: dict[Guarantee, str] = {"marginal": "o", "pac": "s"}
_GREY, _BAND = "#777777", "#d9d9d9"
# Points that are nearer to each other share one text.
_TEXT_WIDTH = 0.07
# Characters in a line of the conclusion, of the figures below it, and of the explanation.
_CONCLUSION, _FIGURES, _EXPLANATION = 125, 150, 190
# Heights of their lines in inches, and of the space around the first two.
_CONCLUSION_LINE, _FIGURES_LINE, _SPACE = 0.21, 0.18, 0.36
_WORDS = (
    "The judge answers a pair only if it is certain enough, and abstains otherwise. Coverage is "
    "the share of pairs that it answers. Alpha is the largest share of wrong answers that is "
    "allowed among these. marginal promises no bound; pac bounds the share of this calibration, "
    "except with probability delta of an unlucky sample. Everything "
    "here is calibrated on all of these labels; dashed lines assume that further pairs are like "
    "these."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The content of the figure.

    Args:
        scores: Scores of a judge on labeled pairs.
        assessment: Their assessment, with the alphas to mark.
        more: Estimates for more labels at these alphas.
    """

    scores: LabelledScores
    assessment: Assessment
    more: Sequence[LabelsRow]

    @property
    def delta(self) -> float:
        """Level of each row of "pac"."""
        return next(row.delta for row in self.assessment.pac_rows if row.delta is not None)

    @property
    def alphas(self) -> list[float]:
        """The alphas that were asked for, in ascending order."""
        return sorted({row.alpha for row in self.assessment.rows})

    def of(self, guarantee: Guarantee) -> list[AlphaRow]:
        """The rows of one guarantee, by rising alpha."""
        rows = [row for row in self.assessment.rows if row.guarantee == guarantee]
        return sorted(rows, key=lambda row: row.alpha)


def write_curve_figure(findings: Findings, file: Path) -> None:
    """Writes the conclusion in words, and under it three panels.

    They show risk against coverage, coverage against alpha, and coverage against labels.

    Args:
        findings: The content.
        file: File to write; its ending, .png or .svg, chooses the format.

    Raises:
        OSError: The file cannot be written.
    """
    figure = curve_figure(findings)
    # Without a date and random ids, equal scores write equal bytes.
    kind = file.suffix.lower().removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else {}
    with rc_context({"svg.hashsalt": "scope-judge"}), replacing(file) as image:
        figure.savefig(image, format=kind, dpi=130, metadata=metadata)


def curve_figure(findings: Findings) -> Figure:
    """The figure, as high as its words need."""
    conclusion, figures = _conclusion(findings)
    height = _CONCLUSION_LINE * len(conclusion) + _FIGURES_LINE * len(figures) + _SPACE
    figure = Figure(figsize=(13.0, height + 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(3, 1, height_ratios=(height, 4.7, 0.7), squeeze=False)
    top, middle, bottom = parts[:, 0]
    top.text(0.01, 0.95, "\n".join(conclusion), va="top", fontsize=12.5, fontweight="bold")
    top.text(0.01, 0.06, "\n".join(figures), fontsize=10.5)
    bottom.text(0.01, 0.95, textwrap.fill(_WORDS, _EXPLANATION), va="top", fontsize=8.5)
    panels = middle.subplots(1, 3)
    _draw_risk(panels[0], findings)
    _draw_coverage(panels[1], findings)
    _draw_labels(panels[2], findings)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e5e5e5", linewidth=0.6)
        axes.set_axisbelow(True)
    handles, names = panels[1].get_legend_handles_labels()
    names = [name if name == "marginal" else f"pac, delta {findings.delta:g}" for name in names]
    band, its_name = panels[0].get_legend_handles_labels()
    # Below the panels, so that no curve crosses the legend.
    middle.legend(
        [*handles, *band],
        [*names, *its_name],
        loc="outside lower center",
        ncols=len(names) + len(its_name),
        frameon=False,
    )
    return figure


def _conclusion(findings: Findings) -> tuple[list[str], list[str]]:
    """The lines of the conclusion, and those of the figures below it."""
    found = findings.assessment
    assert found.accuracy is not None, "there are pairs"
    low, high = share_interval(found.accuracy, found.n)
    answered = ", ".join(f"{row.alpha:g}: {row.coverage:.0%}" for row in findings.of("pac"))
    figures = (
        f"The judge agrees with people on {found.accuracy:.1%} of {found.n} labeled pairs (95% "
        f"interval {low:.1%} to {high:.1%}). Share answered with pac at alpha {answered}."
    )
    return textwrap.wrap(recommendation(found), _CONCLUSION), textwrap.wrap(figures, _FIGURES)


def _draw_risk(axes: Axes, findings: Findings) -> None:
    scores = findings.scores
    curve = ThresholdCurve.fit(scores.uncertainty, scores.error)
    tallies = [curve.accepted_at(score, undecided=scores.undecided) for score in curve.scores]
    counts = np.array([tally for tally in tallies if tally[0]], dtype=np.int64).reshape(-1, 2)
    coverages, risks = counts[:, 0] / scores.n, counts[:, 1] / counts[:, 0]
    low, high = error_interval(counts[:, 0], counts[:, 1])
    # Below a coverage of 0.1 the risk is that of a few points, often 0 or 1: ignored for the scale.
    top = 1.15 * max([*high[coverages >= 0.1].tolist(), 0.02])
    name = "95% interval at each coverage (Clopper-Pearson)"
    axes.fill_between(coverages, low, high, color=_BAND, linewidth=0, zorder=0, label=name)
    few = "." if len(risks) <= 30 else None
    axes.plot(coverages, risks, color=_GREY, linewidth=1.2, marker=few, zorder=1)
    for guarantee in GUARANTEES:
        accepted = [
            (row.coverage, row.empirical_risk, row.alpha)
            for row in findings.of(guarantee)
            if row.empirical_risk is not None
        ]
        if accepted:
            # Inside the axes, with room for the text.
            edge = np.clip(high if guarantee == "marginal" else low, 0.06 * top, 0.95 * top)
            ends = np.interp([x for x, _, _ in accepted], coverages, edge)
            _draw_points(axes, guarantee, accepted, ends.tolist())
    axes.set(
        xlabel="coverage (share of pairs accepted)",
        ylabel="share of errors among the accepted",
        title=f"Risk at each alpha, n = {scores.n}",
        xlim=(0, 1.04),
        ylim=(0, top),
    )


def error_interval(
    accepted: NDArray[np.int64], errors: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """The 95% interval of each error rate by Clopper and Pearson (1934), shape (m,) each."""
    return clopper_pearson(errors, accepted, tail=0.025)


def _draw_points(
    axes: Axes,
    guarantee: Guarantee,
    points: Sequence[tuple[float, float, float]],
    ends: Sequence[float],
) -> None:
    """Draws points (x, y, alpha) with their alpha: above the band for "marginal", or below it."""
    axes.scatter(
        [x for x, _, _ in points],
        [y for _, y, _ in points],
        color=_COLOURS[guarantee],
        marker=_MARKERS[guarantee],
        s=34 if guarantee == "marginal" else 20,
        zorder=2,
    )
    axes.vlines(
        [x for x, _, _ in points],
        [y for _, y, _ in points],
        ends,
        color=_COLOURS[guarantee],
        linewidth=0.6,
        zorder=1,
    )
    groups: list[list[tuple[float, float, float]]] = []
    for (x, _, alpha), end in zip(points, ends, strict=True):
        point = (x, end, alpha)
        if groups and point[0] - groups[-1][-1][0] < _TEXT_WIDTH:
            groups[-1].append(point)
        else:
            groups.append([point])
    for group in groups:
        x, y, _ = group[-1]
        alphas = [alpha for _, _, alpha in group]
        text = f"{alphas[0]:g}" if len(alphas) == 1 else f"{alphas[0]:g} to {alphas[-1]:g}"
        above = guarantee == "marginal"
        axes.annotate(
            text,
            (x, y),
            xytext=(0, 2 if above else -2),
            textcoords="offset points",
            ha="right" if x > 0.95 else "center",
            va="bottom" if above else "top",
            color=_COLOURS[guarantee],
            fontsize=8,
            zorder=3,
        )


def _draw_coverage(axes: Axes, findings: Findings) -> None:
    largest = max(_LARGEST_ALPHA, findings.alphas[-1])
    # From 0.01, 116 of them.
    fine = np.linspace(0.01, largest, 117).tolist()
    rows = threshold_rows(findings.scores, fine, delta=findings.delta)
    for guarantee in GUARANTEES:
        line = [row for row in rows if row.guarantee == guarantee]
        marked = findings.of(guarantee)
        axes.plot(
            [row.alpha for row in line],
            [row.coverage for row in line],
            color=_COLOURS[guarantee],
            drawstyle="steps-post",
            linewidth=1.6,
        )
        axes.plot(
            [row.alpha for row in marked],
            [row.coverage for row in marked],
            color=_COLOURS[guarantee],
            marker=_MARKERS[guarantee],
            markersize=5,
            linestyle="",
            label=guarantee,
        )
    axes.set(
        xlabel="alpha (largest share of wrong answers)",
        ylabel="coverage (share of pairs answered)",
        title="Coverage at each alpha",
        xlim=(0, 1.02 * largest),
        ylim=(-0.03, 1.04),
    )


def _draw_labels(axes: Axes, findings: Findings) -> None:
    alphas = findings.alphas
    alpha = _USUAL_ALPHA if _USUAL_ALPHA in alphas else alphas[0]
    rows = coverage_by_labels(findings.scores, alpha=alpha, delta=findings.delta)
    n = findings.scores.n
    for guarantee in GUARANTEES:
        line = [row for row in rows if row.guarantee == guarantee]
        beyond = [row for row in findings.more if (row.guarantee, row.alpha) == (guarantee, alpha)]
        axes.plot(
            [row.labels for row in line],
            [row.coverage for row in line],
            color=_COLOURS[guarantee],
            marker=_MARKERS[guarantee],
            markersize=4,
            linewidth=1.6,
        )
        axes.plot(
            [n, *(row.labels for row in beyond)],
            [line[-1].coverage, *(row.coverage for row in beyond)],
            color=_COLOURS[guarantee],
            linestyle="--",
            linewidth=1.2,
        )
    axes.axvline(n, color=_GREY, linewidth=0.8)
    axes.set(
        xlabel=f"number of labels (now {n}; dashed: an estimate)",
        ylabel="mean coverage",
        title=f"Would more labels help? alpha {alpha:g}",
        xlim=(0, 1.04 * max([n, *(row.labels for row in findings.more)])),
        ylim=(-0.03, 1.04),
    )
