"""Writes the figures of speed into docs/measured/speed.md from their JSON file.

Usage: python -m docs.tools.make_speed_tables

`make bench` measures the figures and writes docs/measured/bench.json.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests import markdown
from tests.benchmarks.figures import MEASURED, ROOT, Entry, FigureFile
from tests.markdown import between_markers

PAGE = ROOT / "docs" / "measured" / "speed.md"
COMMAND = "python -m docs.tools.make_speed_tables"
# Figure on the page -> its words in the table. "the same" refers to the row above. The other
# figures are in the file alone.
LABELS = {
    "engine-demo": "`/judge/batch` over offline `LLM.generate` of the same tokens, demo judge",
    "engine-smollm2": "the same, real judge",
    "chat-client-demo": "`/judge/batch` over two chat completions a pair, 32 at once, demo judge",
    "chat-client-smollm2": "the same, real judge",
    "transformers-loop-demo": "`/judge/batch` over a loop with transformers, demo judge",
    "transformers-loop-smollm2": "the same, real judge",
    "http-scripted": "scripted engine, batches of 64 over HTTP, one process",
    "single-scripted": "scripted engine, single `/judge`",
    "memory": "memory after 1e6 judgments over that after 1e4",
    "client-batch": "Python client, `judge_many` with 64 pairs, over httpx with the same body",
    "client-stream": "Python client, `judge_many` with 20,000 pairs, over httpx by hand",
    "start-first": "start until the service is ready, nothing cached",
    "start-again": "the same, with caches and store of an earlier start",
}
HEADINGS = ("figure", "ours", "theirs", "ratio (spread)", "aim", "measured")
_UNITS = {"comparisons/s": "/s", "requests/s": "/s", "pairs/s": "/s"}


def short(number: float) -> str:
    """A number with about three digits."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def table(file: FigureFile) -> str:
    """All figures, in Markdown."""
    rows = [_row(name, file.entries.get(name)) for name in LABELS]
    return markdown.table(HEADINGS, rows)


def _row(name: str, entry: Entry | None) -> tuple[str, ...]:
    words = f"`{name}`: {LABELS[name]}"
    if entry is None:
        return (words, "", "", "", "", "not measured")
    figure = entry.figure
    ratio = compared(figure)
    if figure["met"] is False:
        ratio = f"**{ratio}**"
    return (
        words,
        _amount(figure["ours"], figure["unit"]),
        _amount(figure["theirs"], figure["unit"]) if figure["theirs"] else "",
        ratio,
        _aim(figure),
        _place(entry.run),
    )


def compared(figure: Mapping[str, Any]) -> str:
    """Median and spread of what is compared with the aim: the ratio, or ours alone."""
    low, high = figure["spread"]
    shown = short(figure["median"])
    return shown if low == high else f"{shown} ({short(low)}-{short(high)})"


def _amount(samples: Sequence[float], unit: str) -> str:
    number = short(statistics.median(samples))
    return f"{number}{_UNITS[unit]}" if unit in _UNITS else f"{number} {unit}"


def _aim(figure: Mapping[str, Any]) -> str:
    if figure["target"] is None:
        return ""
    return f"{'≤' if figure['at_most'] else '≥'} {figure['target']:,g}"


def _place(run: Mapping[str, Any]) -> str:
    commit = run["commit"]
    # "+" marks a working tree with changes.
    return "no commit" if commit is None else f"`{commit[:7]}{'+' if commit[-1] == '+' else ''}`"


def page() -> str:
    """The page as it should be."""
    file = FigureFile(MEASURED)
    text = PAGE.read_text(encoding="utf-8")
    return between_markers("figures", f"\n{table(file)}\n\n", text)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
