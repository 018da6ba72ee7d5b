"""Draws the picture and writes the table of docs/integrations/trl.md.

Usage: python -m docs.tools.make_grpo_figure

`python -m docs.tools.train_grpo` measures the figures.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tests.markdown import put_between_markers, table

NUMBERS = Path(__file__).parents[1] / "measured" / "grpo.json"
PAGE = Path(__file__).parents[1] / "integrations" / "trl.md"
PICTURE = PAGE.with_name("grpo.png")
# A line shows the mean of as many steps, and the table that of the first and the last ones.
WINDOW = 10
# Figure -> its label and its color.
LINES = {
    "right": ("right answers", "#009E73"),
    "win_rate": ("win rate", "#0072B2"),
    "coverage": ("coverage", "#E69F00"),
    "reward": ("mean reward", "#999999"),
}

# Name of a figure -> its value in one step; None if TRL has logged none.
Step = Mapping[str, float | None]
# Learning rate -> its trainings.
Runs = Mapping[str, Sequence[Sequence[Step]]]


def draw(runs: Runs) -> Figure:
    """A panel for each learning rate, over the steps; a gap is a step without any figure."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(runs), sharey=True)
    for panel, (rate, own) in zip(panels, runs.items(), strict=True):
        for name, (label, color) in LINES.items():
            values = [_mean(step[name] for step in steps) for steps in zip(*own, strict=True)]
            shown = [_mean(values[max(0, i - WINDOW + 1) : i + 1]) for i in range(len(values))]
            numbers = range(1, len(values) + 1)
            panel.plot(numbers, _floats(values), color=color, linewidth=0.7, alpha=0.35)
            panel.plot(numbers, _floats(shown), color=color, linewidth=2, label=label)
        panel.set_title(f"learning rate {rate}", loc="left", fontsize=11)
        panel.set_xlabel("step")
        panel.grid(color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylim(-0.3, 1.03)
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside right upper")
    return figure


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the figures that are not missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _floats(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def rows(runs: Runs) -> str:
    """The table: means over the first and the last steps of all trainings."""
    return table(
        ("learning rate", "win rate", "right answers"),
        [(rate, _change(own, "win_rate"), _change(own, "right")) for rate, own in runs.items()],
    )


def _change(runs: Sequence[Sequence[Step]], name: str) -> str:
    parts = ([run[:WINDOW] for run in runs], [run[-WINDOW:] for run in runs])
    first, last = (_mean(step[name] for run in part for step in run) for part in parts)
    return f"{_share(first)} to {_share(last)}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def main() -> None:
    """Draws the picture and writes the table."""
    runs: Runs = json.loads(NUMBERS.read_text(encoding="utf-8"))
    draw(runs).savefig(PICTURE, dpi=150)
    put_between_markers("grpo", rows(runs), PAGE)


if __name__ == "__main__":
    main()
