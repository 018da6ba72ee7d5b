"""The figures of the report, as SVG inside the page."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from app.evaluation.paper import PaperOutcome
from app.evaluation.protocol import RuleOutcome
from app.evaluation.results import MethodResults


class _Style(NamedTuple):
    colour: str
    marker: str
    label: str


# Blue, vermilion and bluish green of Okabe and Ito (2008): distinguishable with any colour vision.
# The markers differ for black and white. Each rule uses the paper's signal.
_STYLES: Mapping[str, _Style] = {
    "scope": _Style("#0072B2", "o", "SCOPE"),
    "pac": _Style("#D55E00", "s", "pac"),
    "naive": _Style("#009E73", "^", "naive (predictive probability)"),
}
# Okabe and Ito again, for judges.
_JUDGE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_JUDGE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_GREY = "#777777"
_BARS = "#9CC7E4"  # the blue, light enough for dark figures on it
# matplotlib's metadata changes with its version: without it, equal results give equal bytes.
_NO_METADATA: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))

# Rows at every alpha by selector, on the paper's signal for the selector.
Curves = Mapping[str, Sequence[RuleOutcome]]
# The paper's numbers by selector and alpha.
Marks = Mapping[str, Mapping[float, PaperOutcome]]


def risk_figure(curves: Curves, marks: Marks, *, key: str) -> str | None:
    """Draws risk against alpha with one standard deviation, and the line risk = alpha.

    Args:
        curves: Rows of "scope", "pac" and "naive", or of some of them.
        marks: The paper's outcomes to draw as points.
        key: A key that is unique in the page; the ids inside the figure depend on it.

    Returns:
        An `<svg>` element without text from users; None if there is nothing to draw.
    """

    def draw(axes: Axes) -> None:
        top = _draw_bands(axes, curves, "risk")
        top = max(top, _draw_sums(axes, curves.get("scope", ())))
        top = max(top, _draw_marks(axes, marks, "risk"))
        highest = max(row.alpha for rows in curves.values() for row in rows)
        line = [0.0, 1.08 * highest]
        axes.plot(line, line, color=_GREY, linestyle="--", linewidth=1.1, label="risk = alpha")
        # A small alpha accepts a few pairs that may all be wrong: limited for the scale.
        axes.set(ylabel="risk", xlim=line, ylim=(0, 1.08 * max(highest, min(top, 2 * highest))))

    return _alpha_figure(draw, key) if any(curves.values()) else None


def coverage_figure(curves: Curves, marks: Marks, *, key: str) -> str | None:
    """Draws coverage against alpha with one standard deviation; arguments as for `risk_figure`."""

    def draw(axes: Axes) -> None:
        _draw_bands(axes, curves, "coverage")
        _draw_marks(axes, marks, "coverage")
        highest = max(row.alpha for rows in curves.values() for row in rows)
        axes.set(ylabel="coverage (share of pairs)", xlim=(0, 1.08 * highest), ylim=(0, 1.03))

    return _alpha_figure(draw, key) if any(curves.values()) else None


def judges_figure(
    curves: Sequence[Sequence[RuleOutcome]], reading: Literal["risk", "coverage"], *, key: str
) -> str:
    """Draws risk or coverage against alpha, a line for each judge, called by its number from 1.

    Args:
        curves: Rows of one rule at every alpha, for each judge.
        reading: The figure to draw.
        key: A key that is unique in the page; the ids inside the figure depend on it.
    """

    def draw(axes: Axes) -> None:
        for place, rows in enumerate(curves):
            axes.plot(
                [row.alpha for row in rows],
                [getattr(row.outcome, reading) for row in rows],
                color=_JUDGE_COLOURS[place % len(_JUDGE_COLOURS)],
                marker=_JUDGE_MARKERS[place % len(_JUDGE_MARKERS)],
                markersize=4.5,
                linewidth=1.6,
                label=f"judge {place + 1}",
            )
        highest = max(row.alpha for rows in curves for row in rows)
        end = 1.08 * highest
        if reading == "risk":
            axes.plot([0.0, end], [0.0, end], color=_GREY, linestyle="--", label="risk = alpha")
        top = end if reading == "risk" else 1.03
        axes.set(ylabel=reading, xlim=(0.0, end), ylim=(0.0, top))

    return _alpha_figure(draw, key)


def reliability_figure(method: MethodResults, title: str, *, start: float, key: str) -> str | None:
    """Draws the share of right verdicts in each bin of confidence, with the number of pairs.

    Args:
        method: Results with the non-empty bins.
        title: Title of the method, not a text from users.
        start: Start of the axis of confidence, from `lowest_confidence`.
        key: A key that is unique in the page; the ids inside the figure depend on it.

    Returns:
        An `<svg>` element; None if all bins are empty.
    """
    if not method.reliability:
        return None
    figure = Figure(figsize=(1.95, 2.2), layout="constrained")
    axes = figure.subplots()
    lefts = [confidence_bin.place / 10 for confidence_bin in method.reliability]
    heights = [confidence_bin.accuracy for confidence_bin in method.reliability]
    axes.bar(lefts, heights, width=0.1, align="edge", color=_BARS, edgecolor="white", zorder=1)
    for left, confidence_bin in zip(lefts, method.reliability, strict=True):
        count, half = str(confidence_bin.count), left + 0.05
        axes.text(half, 0.03, count, rotation=90, ha="center", va="bottom", fontsize=7.5, zorder=3)
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1.1, zorder=2)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(start, 1), ylim=(0, 1.03))
    ticks = np.arange(start, 1.01, 0.2)
    axes.set_xticks(ticks, [f"{tick:.1f}" for tick in ticks])
    # Two lines in every panel, so that their axes are aligned; a second reading needs both.
    name, _, reading = title.partition(", ")
    axes.set_title(f"{name}\n{reading}" if reading else f"\n{name}", fontsize=9)
    _plain(axes)
    axes.grid(visible=False, axis="x")
    return _svg(figure, key)


def lowest_confidence(methods: Sequence[MethodResults]) -> float:
    """Start of the axis: 0.4 if no bin below (0.4, 0.5] has a verdict of any method, else 0."""
    bins = [confidence_bin for method in methods for confidence_bin in method.reliability]
    return 0.4 if all(confidence_bin.place >= 4 for confidence_bin in bins) else 0.0


def _alpha_figure(draw: Callable[[Axes], None], key: str) -> str:
    figure = Figure(figsize=(4.6, 3.9), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.set_xlabel("alpha (largest share of errors asked for)")
    _plain(axes)
    # Below the axes, so that no curve crosses the legend.
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)
    return _svg(figure, key)


def _draw_bands(axes: Axes, curves: Curves, reading: str) -> float:
    """Draws mean and one standard deviation of "risk" or "coverage"; returns the highest edge."""
    top = 0.0
    for place, (selector, rows) in enumerate(curves.items()):
        if not rows:
            continue
        style, alphas = _STYLES[selector], [row.alpha for row in rows]
        # The first curve, SCOPE, lies above the others.
        layer = 2 + (len(curves) - place) / len(curves)
        mean = np.array([getattr(row.outcome, reading) for row in rows])
        std = np.array([getattr(row.outcome, f"{reading}_std") for row in rows])
        low, high = np.maximum(mean - std, 0.0), np.minimum(mean + std, 1.0)
        axes.fill_between(
            alphas, low, high, color=style.colour, alpha=0.13, linewidth=0, zorder=layer
        )
        axes.plot(
            alphas,
            mean,
            color=style.colour,
            marker=style.marker,
            markersize=4.5,
            linewidth=1.6,
            zorder=layer,
            label=style.label,
        )
        top = max(top, float(high.max()))
    return top


def _draw_sums(axes: Axes, rows: Sequence[RuleOutcome]) -> float:
    """Draws the ratio of sums where something is accepted; returns the highest ratio."""
    sums = [(row.alpha, row.outcome.ratio_of_sums) for row in rows]
    defined = [(alpha, ratio) for alpha, ratio in sums if ratio is not None]
    ratios = [ratio for _, ratio in defined]
    axes.plot(
        [alpha for alpha, _ in defined],
        ratios,
        color=_STYLES["scope"].colour,
        marker=".",
        markersize=3,
        linewidth=1.2,
        linestyle=(0, (1, 1)),
        label="SCOPE, ratio of sums",
    )
    return max(ratios, default=0.0)


def _draw_marks(axes: Axes, marks: Marks, reading: Literal["risk", "coverage"]) -> float:
    """Draws the paper's points of "risk" or "coverage"; returns the highest."""
    top = 0.0
    for selector, outcomes in marks.items():
        values = {alpha: getattr(outcome, reading) for alpha, outcome in outcomes.items()}
        points = {alpha: value for alpha, value in values.items() if value is not None}
        if not points:
            continue
        style = _STYLES[selector]
        axes.scatter(
            list(points),
            list(points.values()),
            marker="D",
            s=52,
            facecolors="none",
            edgecolors=style.colour,
            linewidths=1.5,
            zorder=6,
            label=f"{style.label.partition(' ')[0]} in the paper",
        )
        top = max(top, *points.values())
    return top


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5)


def _svg(figure: Figure, key: str) -> str:
    """The `<svg>` element alone; an equal figure and key give equal bytes."""
    FigureCanvasSVG(figure)
    page = io.StringIO()
    with rc_context({"svg.hashsalt": f"scope-judge {key}", "svg.fonttype": "none"}):
        figure.savefig(page, format="svg", metadata=_NO_METADATA)
    drawn = page.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    # Remove ids of groups, which repeat in every figure, and limit the style rule to figures.
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("*{stroke-linejoin", "svg *{stroke-linejoin")
    # Remove the list of fonts of each text; the page sets the fonts once.
    drawn = re.sub(r"font-family: [^;\"]*; ", "", drawn)
    return re.sub(r"\n\s*", "\n", drawn).strip()
