"""The figures of the report: risk and coverage by alpha, and accuracy by confidence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.evaluation import paper
from app.evaluation.methods import METHODS
from app.evaluation.protocol import RuleOutcome
from app.evaluation.report.tables import SIGNALS, method_of
from app.evaluation.results import DatasetResults, MethodResults

Reading = Literal["risk", "coverage"]


class _Style(NamedTuple):
    color: str
    marker: str
    label: str


# Blue, vermilion and bluish green of Okabe and Ito (2008): distinguishable with any color vision.
# The markers differ for black and white. Each rule uses the paper's signal.
_STYLES: Mapping[str, _Style] = {
    "scope": _Style("#0072B2", "o", "SCOPE"),
    "pac": _Style("#D55E00", "s", "pac"),
    "naive": _Style("#009E73", "^", "naive (predictive probability)"),
}
_GRAY, _BARS = "#777777", "#9CC7E4"


def alpha_figure(judge: str | None, dataset: DatasetResults) -> Figure | None:
    """Risk and coverage against alpha, with one standard deviation and the paper's points."""
    curves = {rule: _curve(dataset, rule) for rule in _STYLES}
    if not any(curves.values()):
        return None
    figure = Figure(figsize=(9.2, 4.2), layout="constrained")
    risk, coverage = figure.subplots(1, 2)
    highest = 1.08 * max(row.alpha for rows in curves.values() for row in rows)
    for rule, rows in curves.items():
        _draw(risk, rule, rows, "risk")
        _draw(coverage, rule, rows, "coverage")
        _mark(risk, coverage, rule, rows, judge, dataset.name)
    sums = [(row.alpha, row.outcome.ratio_of_sums) for row in curves["scope"]]
    defined = [(alpha, ratio) for alpha, ratio in sums if ratio is not None]
    if defined:
        risk.plot(*zip(*defined, strict=True), ":", color=_STYLES["scope"].color)
    risk.plot([0.0, highest], [0.0, highest], "--", color=_GRAY, label="risk = alpha")
    # A small alpha may accept a few pairs that are all wrong: limited for the scale.
    risk.set(ylabel="risk (dotted: ratio of sums)", ylim=(0, min(2 * highest, 1.03)))
    coverage.set(ylabel="coverage (share of pairs)", ylim=(0, 1.03))
    for axes in (risk, coverage):
        axes.set(xlabel="alpha (largest share of errors asked for)", xlim=(0, highest))
        _plain(axes)
    handles, labels = risk.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def reliability_figure(dataset: DatasetResults) -> Figure | None:
    """The share of right verdicts in each bin of confidence, with the number of pairs."""
    methods = [method for method in dataset.methods if method.reliability]
    if not methods:
        return None
    figure = Figure(figsize=(2.3 * len(methods), 2.6), layout="constrained")
    panels = figure.subplots(1, len(methods), squeeze=False)[0]
    start = _lowest_confidence(methods)
    for axes, method in zip(panels, methods, strict=True):
        for one in method.reliability:
            left = one.place / 10
            axes.bar(left, one.accuracy, width=0.1, align="edge", color=_BARS, edgecolor="white")
            axes.text(left + 0.05, 0.03, str(one.count), rotation=90, ha="center", fontsize=7.5)
        axes.plot([0, 1], [0, 1], "--", color=_GRAY)
        axes.set(xlabel="confidence", ylabel="accuracy", xlim=(start, 1), ylim=(0, 1.03))
        axes.set_title(METHODS[method.method].title, fontsize=9)
        _plain(axes)
    return figure


def write_figures(judge: str | None, datasets: Sequence[DatasetResults], folder: Path) -> None:
    """Writes PNG files, whose names have the number of the data set.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(exist_ok=True)
    for place, dataset in enumerate(datasets, start=1):
        drawn = {"alpha": alpha_figure(judge, dataset), "reliability": reliability_figure(dataset)}
        for name, figure in drawn.items():
            if figure is not None:
                figure.savefig(folder / f"{place}-{name}.png", dpi=150)


def _curve(dataset: DatasetResults, rule: str) -> list[RuleOutcome]:
    method = method_of(dataset, SIGNALS[rule])
    rows = [row for row in method.rows if row.selector == rule] if method else []
    return sorted(rows, key=lambda row: row.alpha)


def _draw(axes: Axes, rule: str, rows: Sequence[RuleOutcome], reading: Reading) -> None:
    if not rows:
        return
    style, alphas = _STYLES[rule], [row.alpha for row in rows]
    mean = np.array([getattr(row.outcome, reading) for row in rows])
    std = np.array([getattr(row.outcome, f"{reading}_std") for row in rows])
    low, high = np.maximum(mean - std, 0.0), np.minimum(mean + std, 1.0)
    axes.fill_between(alphas, low, high, color=style.color, alpha=0.13, linewidth=0)
    axes.plot(alphas, mean, color=style.color, marker=style.marker, ms=4.5, label=style.label)


def _mark(
    risk: Axes,
    coverage: Axes,
    rule: str,
    rows: Sequence[RuleOutcome],
    judge: str | None,
    dataset: str,
) -> None:
    """Draws the paper's points as diamonds."""
    style = _STYLES[rule]
    for row in rows:
        theirs = paper.outcome(judge, dataset, rule, signal=SIGNALS[rule], alpha=row.alpha)
        if theirs is None:
            continue
        for axes, value in ((risk, theirs.risk), (coverage, theirs.coverage)):
            if value is not None:
                axes.plot(row.alpha, value, "D", ms=7, mfc="none", mec=style.color)


def _lowest_confidence(methods: Sequence[MethodResults]) -> float:
    """Start of the axis: 0.4 if no bin below (0.4, 0.5] has a verdict of any method, else 0."""
    places = [one.place for method in methods for one in method.reliability]
    return 0.4 if min(places) >= 4 else 0.0


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5)
