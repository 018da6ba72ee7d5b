"""Measures what audits notice when the traffic changes; writes the tables, the figure and the JSON.

python docs/tools/make_audit_figure.py            # starts the services itself: some minutes
python docs/tools/make_audit_figure.py --drawn    # only draws and writes the tables again
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from app.core.monitoring import alarm_delta
from app.service.auditing.drift import DRIFT_DELTA
from tests.demo_judge.changed_traffic import RATE, STEADY, Phase, Point, Story, measure

FOLDER = Path(__file__).parents[1] / "measured"
NUMBERS, PAGE = FOLDER / "audits.json", FOLDER / "audits.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
MODES = ("report", "abstain")
# Evidence of an alarm: of the drift, and of the first criterion under the monitor.
DRIFT, MONITOR = 1 / DRIFT_DELTA, 1 / alarm_delta(1)
HEADINGS = (
    "SCOPE_ON_ALARM",
    "phase",
    "judged",
    "accepted",
    "wrong",
    "wrong among accepted",
    "with a labeled audit",
)


def table(stories: Sequence[Story]) -> str:
    """The counts of each phase, in Markdown."""
    lines = [HEADINGS, ("---",) * len(HEADINGS)]
    for story in stories:
        for phase in story.phases:
            share = f"{phase.wrong / phase.accepted:.1%}" if phase.accepted else "-"
            counts = (f"{phase.judged:,}", f"{phase.accepted:,}", f"{phase.wrong:,}", share)
            lines.append((f"`{story.on_alarm}`", phase.name, *counts, f"{phase.audited:,}"))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def draw(story: Story) -> Figure:
    """The evidence of the monitor and of the drift over the judgments, and the limits of both."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    judged = [point.judged for point in story.points]
    # Evidence begins at 0, which a logarithmic axis cannot show.
    for name, values, limit, colour in (
        ("drift, without labels", [point.drift for point in story.points], DRIFT, "#56B4E9"),
        ("monitor, from labels", [point.monitor for point in story.points], MONITOR, "#D55E00"),
    ):
        panel.plot(judged, [max(v, 1e-3) for v in values], color=colour, linewidth=2, label=name)
        alarm = f"its alarm, at {limit:.0f}"
        panel.axhline(limit, color=colour, linewidth=1, linestyle="--", label=alarm)
    panel.axvline(STEADY, color="#999999", linewidth=1)
    panel.text(STEADY, 4e-4, " sums and differences\n become frequent", fontsize=9, va="bottom")
    panel.set_yscale("log")
    panel.set_xlim(0, 2 * STEADY)
    panel.set_ylim(3e-4, 1e6)
    panel.set_xlabel("judgments")
    panel.set_title("Evidence that the promise is broken", loc="left", fontsize=11)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, loc="upper left")
    return figure


def told() -> list[Story]:
    """Runs the story with a service for each setting of SCOPE_ON_ALARM."""
    # A module beside this one: it is not found where this one is imported from its package.
    from running_service import running_service

    stories = []
    for mode in MODES:
        settings = {"SCOPE_AUDIT_RATE": str(RATE), "SCOPE_ON_ALARM": mode}
        with (
            tempfile.TemporaryDirectory() as folder,
            running_service(Path(folder), settings) as url,
            httpx.Client(base_url=url, timeout=600) as client,
        ):
            stories.append(measure(client, mode))
    return stories


def read() -> list[Story]:
    """The stories that were measured last."""
    measured: list[dict[str, Any]] = json.loads(NUMBERS.read_text(encoding="utf-8"))
    for story in measured:
        story["phases"] = [Phase(*phase) for phase in story["phases"]]
        story["points"] = [Point(*point) for point in story["points"]]
    return [Story(**story) for story in measured]


def main() -> None:
    """Measures, and writes all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawn", action="store_true", help="measure nothing; draw again")
    if not parser.parse_args().drawn:
        found = [asdict(story) for story in told()]
        NUMBERS.write_text(json.dumps(found) + "\n", encoding="utf-8")
    stories = read()
    draw(stories[0]).savefig(FOLDER / "audits.png", dpi=150)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(stories)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
