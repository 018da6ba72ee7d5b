"""Draws the dashboard in its own layout from the results of its queries, without Grafana."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from tests.drills.monitoring import dashboard
from tests.drills.monitoring.prometheus import Prometheus, Series

_COLUMNS = 24
# Size of the grid's columns and rows in inches.
_COLUMN, _ROW = 0.6, 0.29
# Margins around a panel's axes in inches: title above, legend below, scale on the left.
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.6, 0.12, 0.32, 0.58
_PALETTE = ("#56a64b", "#f2cc0c", "#3274d9", "#ff780a", "#e02f44", "#a352cc", "#37872d", "#8f3bb8")
_COLOURS = {
    "blue": "#3274d9",
    "purple": "#a352cc",
    "orange": "#ff9830",
    "dark-orange": "#fa6400",
    "red": "#e02f44",
    "dark-red": "#ad0317",
    "yellow": "#f2cc0c",
    "green": "#37872d",
}
_MOST_IN_A_LEGEND = 12


class Span(NamedTuple):
    """The time span of the picture, in seconds since 1970."""

    start: float
    end: float
    step: float


class _Painter:
    def __init__(self, prometheus: Prometheus, span: Span) -> None:
        self._prometheus = prometheus
        self._span = span
        # Grafana computes $__rate_interval in the same way.
        self._rate_s = max(4 * prometheus.every_s, round(span.step) + prometheus.every_s)
        self._marks = self._calibration_changes()
        self.empty: list[str] = []

    def _asked(self, panel: dict[str, Any]) -> list[tuple[str, Series]]:
        """(legend, series) of all targets."""
        found = []
        for target in panel["targets"]:
            query = dashboard.substituted(target["expr"], rate_interval_s=self._rate_s)
            for series in self._prometheus.query_range(query, **self._span._asdict()):
                legend = target["legendFormat"]
                for name, value in series.labels.items():
                    legend = legend.replace("{{" + name + "}}", value)
                found.append((legend, series))
        if not found:
            self.empty.append(panel["title"])
        return found

    def _calibration_changes(self) -> set[float]:
        """The times at which a calibration changed."""
        (mark,) = dashboard.load()["annotations"]["list"]
        query = dashboard.substituted(mark["expr"], rate_interval_s=self._rate_s)
        times = {
            time
            for series in self._prometheus.query_range(query, **self._span._asdict())
            for time, _ in series.points
        }
        # The first time of each run of adjacent times.
        return {time for time in times if time - self._span.step not in times}

    def stat(self, axes: Axes, panel: dict[str, Any]) -> None:
        """The last number over an area plot of all numbers."""
        axes.axis("off")
        found = self._asked(panel)
        if not found:
            return
        times, values = _columns(found[0][1])
        defaults = panel["fieldConfig"]["defaults"]
        last = next((v for v in values[::-1] if np.isfinite(v)), np.nan)
        colour = "blue"
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is None or last >= step["value"]:
                colour = step["color"]
        axes.fill_between(times, values, color=_COLOURS[colour], alpha=0.15, linewidth=0)
        axes.set_ylim(0, max(1e-9, 2.5 * float(np.nanmax(values))))
        text = _formatted(panel)(last)
        drawn = axes.text(0.5, 0.55, text, transform=axes.transAxes, color=_COLOURS[colour])
        drawn.set(ha="center", va="center", fontsize=19, fontweight="bold")

    def timeseries(self, axes: Axes, panel: dict[str, Any]) -> None:
        """Lines, or stacked layers."""
        found = sorted(self._asked(panel), key=lambda each: each[0])
        defaults = panel["fieldConfig"]["defaults"]
        fixed = {
            each["matcher"]["options"]: _COLOURS[each["properties"][0]["value"]["fixedColor"]]
            for each in panel["fieldConfig"]["overrides"]
        }
        below: dict[float, float] = {}
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        for i, (legend, series) in enumerate(found):
            colour = fixed.get(legend, _PALETTE[i % len(_PALETTE)])
            label = legend if i < _MOST_IN_A_LEGEND else None
            if stacked:
                ground = [below.get(time, 0.0) for time, _ in series.points]
                above = [g + max(0.0, v) for g, (_, v) in zip(ground, series.points, strict=True)]
                times = [time for time, _ in series.points]
                axes.fill_between(times, ground, above, color=colour, alpha=0.6, linewidth=0)
                axes.plot(times, above, color=colour, linewidth=0.9, label=label)
                below |= {t: a for (t, _), a in zip(series.points, above, strict=True)}
            else:
                times, values = _columns(series, gap_s=2.5 * self._span.step)
                axes.plot(times, values, color=colour, linewidth=1.1, label=label)
        self._scale(axes, panel)
        if found:
            axes.legend(
                ncols=3 if any(len(legend) > 16 for legend, _ in found) else 4,
                fontsize=5.8,
                frameon=False,
                handlelength=1.2,
                columnspacing=1.0,
                labelspacing=0.2,
                borderaxespad=0,
                loc="upper left",
                bbox_to_anchor=(-0.45 / _width(axes), -0.11),
            )

    def _scale(self, axes: Axes, panel: dict[str, Any]) -> None:
        defaults = panel["fieldConfig"]["defaults"]
        text = FuncFormatter(lambda value, _: _formatted(panel)(value))
        if defaults["custom"]["scaleDistribution"]["type"] == "log":
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(
                LogLocator(subs=(1.0, 2.0, 5.0)[: 3 if high < 99 * low else 1])
            )
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        else:
            top = defaults.get("max", 1.08 * axes.get_ylim()[1])
            axes.set_ylim(defaults["min"], top)
        axes.yaxis.set_major_formatter(text)
        self._times(axes)
        for mark in self._marks:
            axes.axvline(mark, color="#a352cc", ls=":", lw=0.7)
        axes.grid(color="#00000014", linewidth=0.6)

    def _times(self, axes: Axes) -> None:
        def text(time: float, _: int | None) -> str:
            return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S")

        axes.set_xlim(self._span.start, self._span.end)
        axes.xaxis.set_major_formatter(FuncFormatter(text))
        axes.xaxis.set_major_locator(MaxNLocator(4))

    def heatmap(self, axes: Axes, panel: dict[str, Any]) -> None:
        """The count of each bucket; as in Grafana, all buckets are equally high."""
        found = sorted(self._asked(panel), key=lambda each: float(each[0]))
        if not found:
            return
        times = sorted({time for _, series in found for time, _ in series.points})
        cumulated = np.array(
            [[dict(series.points).get(time, np.nan) for time in times] for _, series in found]
        )
        counts = np.diff(cumulated, axis=0, prepend=0.0)
        edges = [*times, times[-1] + self._span.step]
        shown = np.where(counts > 0, counts, np.nan)
        axes.pcolormesh(edges, np.arange(len(found) + 1), shown, cmap="Oranges")
        ticks = range(0, len(found), 2)
        texts = [
            "+Inf" if found[i][0] == "+Inf" else _formatted(panel)(float(found[i][0]))
            for i in ticks
        ]
        axes.set_yticks([i + 1 for i in ticks], texts)
        self._times(axes)

    def table(self, axes: Axes, panel: dict[str, Any]) -> None:
        """A row for each label value and a column for each target, with the last values."""
        axes.axis("off")
        units = {
            each["matcher"]["options"]: each["properties"][0]["value"]
            for each in panel["fieldConfig"]["overrides"]
        }
        columns = [target["legendFormat"] for target in panel["targets"]]
        rows: dict[str, dict[str, float]] = {}
        for legend, series in self._asked(panel):
            rows.setdefault(series.labels["calibration"], {})[legend] = series.points[-1][1]
        cells = [
            [name]
            + [
                _FORMATS[units.get(column, "none")](row[column]) if column in row else ""
                for column in columns
            ]
            for name, row in sorted(rows.items())
        ]
        drawn = axes.table(
            cellText=cells or [[""] * (len(columns) + 1)],
            colLabels=["calibration", *columns],
            loc="upper center",
            cellLoc="left",
            edges="horizontal",
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(7.5)
        drawn.scale(1, 1.5)


def _width(axes: Axes) -> float:
    """Width of the axes in inches."""
    return float(axes.bbox.width / axes.figure.dpi)


def _columns(series: Series, *, gap_s: float = float("inf")) -> tuple[Any, Any]:
    """Times and values, with a NaN in each gap longer than `gap_s`."""
    points: list[tuple[float, float]] = []
    for time, value in series.points:
        if points and time - points[-1][0] > gap_s:
            points.append((time - gap_s / 2, np.nan))
        points.append((time, value))
    found = np.array(points)
    return found[:, 0], found[:, 1]


def _short(value: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def _seconds(value: float) -> str:
    for size, unit in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs" if value else "0 s"


def _share(value: float) -> str:
    return f"{100 * value:.3g}%"


_FORMATS: dict[str, Callable[[float], str]] = {
    "none": _short,
    "ops": lambda value: f"{_short(value)}/s",
    "reqps": lambda value: f"{_short(value)}/s",
    "percentunit": _share,
    "s": _seconds,
    "bytes": lambda value: f"{value / 2**20:.3g} MiB",
}


def _formatted(panel: dict[str, Any]) -> Callable[[float], str]:
    return _FORMATS[panel["fieldConfig"]["defaults"]["unit"]]


def draw(prometheus: Prometheus, span: Span, file: Path, *, subtitle: str) -> list[str]:
    """Draws all panels; returns the titles of the panels without data."""
    shown = dashboard.load()
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in shown["panels"])
    head = 0.6
    size = (_COLUMNS * _COLUMN, height * _ROW + head)
    painter = _Painter(prometheus, span)
    with mpl.rc_context({"font.size": 6.5, "axes.linewidth": 0.4}):
        figure = plt.figure(figsize=size, facecolor="#f4f5f5")
        figure.text(0.012, 1 - 0.28 / size[1], shown["title"], fontsize=14, fontweight="bold")
        figure.text(0.115, 1 - 0.27 / size[1], subtitle, fontsize=9, color="#555")
        for panel in shown["panels"]:
            _draw_panel(figure, painter, panel, size, head=head)
        figure.savefig(file, dpi=120, facecolor=figure.get_facecolor())
        plt.close(figure)
    return painter.empty


def _draw_panel(
    figure: Figure,
    painter: _Painter,
    panel: dict[str, Any],
    size: tuple[float, float],
    *,
    head: float,
) -> None:
    place = panel["gridPos"]
    gap = 0.05
    x, width = place["x"] * _COLUMN + gap, place["w"] * _COLUMN - 2 * gap
    top = size[1] - head - place["y"] * _ROW - gap
    low = top - place["h"] * _ROW + 2 * gap

    def part(box: Iterable[float]) -> tuple[float, float, float, float]:
        left, bottom, right, upper = box
        return (
            left / size[0],
            bottom / size[1],
            (right - left) / size[0],
            (upper - bottom) / size[1],
        )

    if panel["type"] == "row":
        figure.text(
            (x + 0.05) / size[0],
            (low + 0.06) / size[1],
            panel["title"],
            fontsize=9.5,
            weight="bold",
        )
        return
    frame = figure.add_axes(part((x, low, x + width, top)))
    frame.set_xticks([])
    frame.set_yticks([])
    for spine in frame.spines.values():
        spine.set_color("#d8d9da")
    inner = figure.add_axes(_part_of(panel, part, x, width, low, top))
    frame.text(0.07 / width, 1 - 0.06 / (top - low), panel["title"], va="top", fontsize=7.5)
    getattr(painter, panel["type"])(inner, panel)
    if panel["title"] in painter.empty:
        inner.clear()
        inner.axis("off")
        inner.text(0.5, 0.5, "No data", ha="center", color="#888", transform=inner.transAxes)


def _part_of(
    panel: dict[str, Any],
    part: Callable[[Iterable[float]], tuple[float, float, float, float]],
    x: float,
    width: float,
    low: float,
    top: float,
) -> tuple[float, float, float, float]:
    if panel["type"] == "stat":
        return part((x + 0.05, low + 0.05, x + width - 0.05, top - 0.25))
    if panel["type"] == "table":
        return part((x + 0.1, low + 0.1, x + width - 0.1, top - _TOP))
    return part((x + _LEFT, low + _BOTTOM, x + width - _RIGHT, top - _TOP))
