"""Measures numbers of docs/concepts/guarantees.md and its figure, and tables of docs/measured.

Usage: python docs/tools/make_guarantees_figure.py      (half a minute; prints, writes the PNG)

A judge here is wrong with probability 1 - accuracy; its confidence is N(d, 1) where it is right and
N(0, 1) where it is wrong, d = sqrt(2) Phi^-1(AUROC). So the true error of a threshold is known.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from app.core.pac import fair_start_rank, pac_threshold
from app.core.preference import LN2
from app.core.thresholds import ThresholdCurve
from tests.statistics.worlds.normal import NormalJudge

SEED, CALIBRATIONS = 2026, 1000
ALPHA, DELTA = 0.10, 0.10
ALPHAS = (0.05, 0.10, 0.15, 0.20, 0.25)
BLUE, VERMILION = "#0072B2", "#D55E00"
Floats = NDArray[np.float64]


class Judge(NamedTuple):
    """A judge whose true error at every threshold is known."""

    name: str
    accuracy: float
    auroc: float

    @property
    def normal(self) -> NormalJudge:
        """The model that draws pairs and knows the truth."""
        return NormalJudge(accuracy=self.accuracy, auroc=self.auroc)

    def best(self, alpha: float) -> float:
        """The largest coverage at which the true error is at most alpha."""
        coverage, error = self.normal.truth(np.linspace(0.0, LN2, 20_001))
        fine = error <= alpha
        return float(coverage[fine].max())


USELESS = Judge("useless confidence", 0.850, 0.500)
WEAK = Judge("MT-Bench, Qwen2.5-7B", 0.738, 0.685)
MIDDLING = Judge("RewardBench, Qwen2.5-7B", 0.807, 0.744)
STRONG = Judge("RewardBench, Qwen2.5-32B", 0.894, 0.822)


class Measured(NamedTuple):
    """Shape (calibrations,) each: what the thresholds truly do."""

    coverage: Floats
    error: Floats

    @property
    def over(self) -> float:
        """Share of calibrations whose true error exceeds alpha."""
        return float((self.error > ALPHA).mean())

    @property
    def over_of_accepting(self) -> float:
        """The same among the calibrations that accept anything; 0 if none does."""
        accepting = self.error[self.coverage > 0]
        return float((accepting > ALPHA).mean()) if len(accepting) else 0.0

    @property
    def ratio(self) -> float:
        """Errors over accepted, both summed over all calibrations."""
        return float((self.coverage * self.error).sum() / max(self.coverage.sum(), 1e-300))


def threshold(
    guarantee: str,
    uncertainty: Floats,
    wrong: NDArray[np.bool_],
    *,
    alpha: float = ALPHA,
) -> float:
    """The threshold of either guarantee, delta 0.1."""
    if guarantee == "marginal":
        return ThresholdCurve.fit(uncertainty, wrong).threshold(alpha)
    return pac_threshold(uncertainty, wrong, alpha=alpha, delta=DELTA)


def measure(
    judge: Judge,
    guarantee: str,
    n: int,
    *,
    alpha: float = ALPHA,
    copies: int = 1,
    live: Judge | None = None,
    calibrations: int = CALIBRATIONS,
) -> Measured:
    """Calibrates anew each time and looks up what the threshold truly does on `live`."""
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(calibrations):
        uncertainty, wrong = judge.normal.draw(n // copies, rng)
        uncertainty, wrong = np.repeat(uncertainty, copies), np.repeat(wrong, copies)
        found.append(threshold(guarantee, uncertainty, wrong, alpha=alpha))
    return Measured(*(live or judge).normal.truth(np.array(found)))


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of Markdown."""
    print(f"\n{title}\n")
    print("| " + " | ".join(headings) + " |")
    print("|---" * len(headings) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def print_guarantees() -> None:
    """Prints the results of both guarantees at alpha 0.10."""
    rows = []
    for judge, n in ((USELESS, 200), (WEAK, 50), (WEAK, 1000), (MIDDLING, 1000), (STRONG, 1000)):
        for guarantee in ("marginal", "pac"):
            found = measure(judge, guarantee, n)
            ratio = f"{found.ratio:.3f}" if found.coverage.any() else "none accepted"
            rows.append(
                [
                    f"{judge.name} ({judge.accuracy:.3f}, {judge.auroc:.3f})",
                    str(n),
                    guarantee,
                    f"{found.coverage.mean():.3f}",
                    f"{found.error.mean():.3f}",
                    ratio,
                    f"{found.over:.1%}",
                    f"{found.over_of_accepting:.1%}",
                ]
            )
    headings = ["judge (accuracy, AUROC)", "labels", "guarantee", "coverage", "mean error"]
    headings += ["errors / accepted", "over alpha", "over, of those that accept"]
    table("alpha 0.10, delta 0.10", headings, rows)
    accepting = (measure(USELESS, "marginal", 200).coverage > 0).mean()
    print(f"\nThe useless judge is accepted in {accepting:.0%} of the marginal calibrations.")


def print_labels_needed() -> None:
    """Labels below which nothing can be accepted, and coverage against labels."""
    rows = []
    sizes = (100, 200, 500, 1000, 2000, 5000)
    for alpha in ALPHAS:
        least = fair_start_rank(alpha, DELTA, 0.0, at_most=10**6)
        found = [measure(MIDDLING, "pac", n, alpha=alpha).coverage.mean() for n in sizes]
        best = MIDDLING.best(alpha)
        least_marginal = str(math.ceil(round(1 / alpha, 9)))
        shown = [f"{each:.2f}" for each in found]
        rows.append([f"{alpha:.2f}", least_marginal, str(least), *shown, f"{best:.2f}"])
    headings = ["alpha", "least, marginal", "least, pac", *(f"n = {n}" for n in sizes), "best"]
    table(f"labels; coverage of pac for {MIDDLING.name}", headings, rows)


def print_broken_exchangeability() -> None:
    """Prints the effect of repeated pairs and of other traffic on pac."""
    cases = {
        "as it should be": measure(MIDDLING, "pac", 1000),
        "every pair twice": measure(MIDDLING, "pac", 1000, copies=2),
        "every pair five times": measure(MIDDLING, "pac", 1000, copies=5),
        "harder traffic than was calibrated on": measure(MIDDLING, "pac", 1000, live=WEAK),
    }
    table(
        "pac, 1000 labels, alpha 0.10, delta 0.10",
        ["calibration", "mean error", "over alpha"],
        [[name, f"{m.error.mean():.3f}", f"{m.over:.1%}"] for name, m in cases.items()],
    )


def print_not_monotone() -> None:
    """How often a larger alpha accepts less with pac."""
    rng = np.random.default_rng(SEED)
    lower, example = 0, None
    for _ in range(300):
        uncertainty, wrong = MIDDLING.normal.draw(1000, rng)
        alphas = [hundredths / 100 for hundredths in range(5, 26)]
        found = [threshold("pac", uncertainty, wrong, alpha=alpha) for alpha in alphas]
        falls = [i for i in range(1, len(found)) if found[i] < found[i - 1]]
        lower += bool(falls)
        if falls and example is None:
            i = falls[0]
            shares = [float((uncertainty <= found[j]).mean()) for j in (i - 1, i)]
            example = (alphas[i - 1], shares[0], alphas[i], shares[1])
    print(f"\npac accepts less at a larger alpha somewhere in {lower / 300:.0%} of calibrations.")
    print("For example alpha {:.2f} accepts {:.3f}, alpha {:.2f} {:.3f}.".format(*(example or ())))


def draw(file: Path) -> None:
    """The true error of 1000 calibrations, and coverage against labels."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    sizes = np.unique(np.geomspace(50, 5000, 13).round(-1).astype(int)).tolist()
    bins = np.arange(0.028, 0.1521, 0.004)
    for guarantee, color in (("marginal", BLUE), ("pac", VERMILION)):
        found = measure(MIDDLING, guarantee, 1000)
        accepting = found.error[found.error > 0]
        label = f"{guarantee}: {found.over:.0%} over alpha"
        left.hist(accepting, bins=bins, color=color, histtype="stepfilled", alpha=0.2)
        left.hist(accepting, bins=bins, color=color, histtype="step", linewidth=1.6, label=label)
        coverages = [
            measure(MIDDLING, guarantee, n, calibrations=300).coverage.mean() for n in sizes
        ]
        right.plot(sizes, coverages, color=color, marker=".", label=guarantee)
    left.axvline(ALPHA, ymax=0.74, color="black", linewidth=1.0)
    left.text(ALPHA, 0.76, "alpha", ha="center", transform=left.get_xaxis_transform())
    left.set(
        xlabel="true share of errors among accepted",
        ylabel=f"calibrations of {CALIBRATIONS}",
        title="The one calibration that you have",
        xlim=(bins[0], bins[-1]),
        ylim=(0, 190),
    )
    right.axhline(MIDDLING.best(ALPHA), color="#777777", linewidth=1.0, linestyle="--")
    right.text(50, MIDDLING.best(ALPHA) + 0.015, "best possible", color="#777777")
    right.set(
        xlabel="labels",
        ylabel="mean coverage",
        title="What labels buy",
        xscale="log",
        ylim=(0, 0.7),
    )
    right.set_xticks([50, 100, 200, 500, 1000, 2000, 5000])
    right.set_xticks([], minor=True)
    right.xaxis.set_major_formatter("{x:.0f}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left" if axes is left else "lower right")
    figure.savefig(file, dpi=130)


if __name__ == "__main__":
    print_guarantees()
    print_labels_needed()
    print_broken_exchangeability()
    print_not_monotone()
    draw(Path(__file__).parents[1] / "concepts" / "guarantees.png")
