"""Measures the demo judge with and without abstaining, and draws the figure of docs/index.md.

make serve                              # in one terminal
python docs/tools/make_abstaining_figure.py   # in another: half a minute; writes JSON and PNG
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import httpx
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tests.demo_judge.measure import Measurement, measure

FOLDER = Path(__file__).parents[1]
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#666666"


def draw(found: Measurement) -> Figure:
    """Two panels over alpha: the share of verdicts, and the share of wrong ones among them."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    verdicts, wrong = figure.subplots(1, 2)
    alphas = list(found.accepted)
    verdicts.plot(alphas, list(found.accepted.values()), color=BLUE, linewidth=2)
    verdicts.set_title("Pairs that get a verdict", loc="left", fontsize=11)
    verdicts.set_ylim(0, 1.03)
    always = 1 - found.accuracy
    wrong.axhline(always, color=VERMILION, linewidth=2)
    wrong.text(0.012, always + 0.004, "the judge always answers", color=VERMILION)
    wrong.plot(alphas, list(found.error.values()), color=BLUE, linewidth=2)
    wrong.text(0.145, 0.085, "the judge may abstain", color=BLUE)
    wrong.plot([0, 0.25], [0, 0.25], color=GREY, linewidth=1, linestyle="--")
    wrong.text(0.165, 0.195, "alpha", color=GREY)
    wrong.set_title("Wrong verdicts among them", loc="left", fontsize=11)
    wrong.set_ylim(0, 0.22)
    for panel in (verdicts, wrong):
        _finish(panel)
    return figure


def _finish(panel: Axes) -> None:
    panel.set_xlim(0, 0.25)
    panel.set_xlabel("alpha: the share of wrong verdicts that you accept")
    panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Measures through a running service, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    with httpx.Client(base_url=parser.parse_args().url, timeout=600) as client:
        found = measure(client)
    figures = FOLDER / "measured" / "demo-judge.json"
    figures.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    draw(found).savefig(FOLDER / "abstaining.png", dpi=150)


if __name__ == "__main__":
    main()
