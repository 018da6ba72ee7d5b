"""Measures what abstaining is worth for rewards; writes the table, the figure and the JSON.

make serve                           # in one terminal
python docs/tools/make_gating_figure.py    # in another: some minutes
python docs/tools/make_gating_figure.py --drawn    # only draws and writes the table again
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import httpx
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tests import markdown
from tests.demo_judge.gating import ALPHAS, Row, measure

FOLDER = Path(__file__).parents[1] / "measured"
NUMBERS, PAGE = FOLDER / "gating.json", FOLDER / "gating.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
COLOURS = dict(zip(ALPHAS, ("#D55E00", "#56B4E9", "#0072B2", "#004466"), strict=True))
HEADINGS = (
    "answers",
    "points",
    "opponents",
    "accepted",
    "wrong among accepted",
    "unordered",
    "wrong among ordered",
    "tau-b",
    "no reward",
)


def table(rows: Sequence[Row]) -> str:
    """The figures with all opponents, and those of hard points with four, in Markdown."""
    lines = []
    for row in rows:
        if row.opponents != "all" and (row.kind, row.opponents) != ("hard", 4):
            continue
        lines.append(
            (
                "always" if row.alpha is None else f"alpha {row.alpha:.2f}",
                row.kind,
                str(row.opponents),
                f"{row.accepted:.1%}",
                _share(row.wrong_of_accepted),
                f"{row.unordered:.1%}",
                _share(row.wrong_of_ordered),
                f"{row.tau_b:.2f}",
                f"{row.without_reward:.1%}",
            )
        )
    return markdown.table(HEADINGS, lines) + "\n"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def draw(rows: Sequence[Row]) -> Figure:
    """Two panels over the prompts of a group, with a line for each alpha; hard points."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    wrong, unordered = figure.subplots(1, 2)
    for alpha in ALPHAS:
        mine = [row for row in rows if row.alpha == alpha and row.kind == "hard"]
        label = "always answers" if alpha is None else f"alpha {alpha:.2f}"
        prompts = [row.prompts for row in mine]
        style = {"color": COLOURS[alpha], "marker": "o", "linewidth": 2, "label": label}
        wrong.plot(prompts, [row.wrong_of_ordered or 0.0 for row in mine], **style)
        unordered.plot(prompts, [row.unordered for row in mine], **style)
    wrong.set_title("Wrong among the ordered pairs", loc="left", fontsize=11)
    unordered.set_title("Pairs left unordered", loc="left", fontsize=11)
    unordered.set_ylim(0, 1.03)
    figure.legend(*wrong.get_legend_handles_labels(), frameon=False, loc="outside right upper")
    for panel in (wrong, unordered):
        _finish(panel)
    return figure


def _finish(panel: Axes) -> None:
    panel.set_ylim(bottom=0)
    panel.set_xlabel("engine prompts for each group of 8 responses")
    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Measures through a running service, and writes all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--drawn", action="store_true", help="measure nothing; draw again")
    asked = parser.parse_args()
    if not asked.drawn:
        with httpx.Client(base_url=asked.url, timeout=600) as client:
            found = [asdict(row) for row in measure(client)]
        NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    rows = [Row(**row) for row in json.loads(NUMBERS.read_text(encoding="utf-8"))]
    draw(rows).savefig(FOLDER / "gating.png", dpi=150)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
