"""Makes the Grafana dashboard from dashboard.toml: `python deploy/grafana/make_dashboard.py`.

Grafana's JSON repeats forty lines for every panel; the TOML has only the differences.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILE = HERE / "dashboards" / "scope-judge.json"

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_ONE = '{job="scope-judge",instance=~"$instance"'
_COLUMNS = 24


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's import format."""
    rows = tomllib.loads((HERE / "dashboard.toml").read_text())["row"]
    return {
        "uid": "scope-judge",
        "title": "scope-judge",
        "description": "Verdicts, abstentions, errors, latency and calibration of scope-judge.",
        "tags": ["scope-judge"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": [_calibration_marks()]},
        "panels": _laid_out(rows),
    }


def _query(text: str) -> str:
    written = text.strip().replace("{SET", _ONE + ',calibration=~"$calibration"')
    return written.replace("{ONE", _ONE).replace("[R]", "[$__rate_interval]")


def _variables() -> list[dict[str, Any]]:
    def asked(name: str, label: str, query: str) -> dict[str, Any]:
        return {
            "type": "query",
            "name": name,
            "label": label,
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": name},
            # Reload whenever the time range changes: replicas come and go.
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        }

    source = {"type": "datasource", "name": "datasource", "label": "Prometheus", "refresh": 1}
    return [
        source | {"query": "prometheus"},
        asked("instance", "Replica", 'label_values(up{job="scope-judge"}, instance)'),
        asked(
            "calibration",
            "Calibration",
            'label_values(scope_calibration_version{job="scope-judge"}, calibration)',
        ),
    ]


def _calibration_marks() -> dict[str, Any]:
    changes = "max by (calibration) (changes(scope_calibration_version{SET}[R])) > 0"
    return {
        "name": "Calibration changed",
        "datasource": _DATASOURCE,
        "enable": True,
        "iconColor": "purple",
        "expr": _query(changes),
        "titleFormat": "{{calibration}} has a new version",
    }


def _laid_out(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All panels, from left to right and from top to bottom."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        title = {"type": "row", "title": row["title"], "collapsed": False, "panels": []}
        placed.append({"id": len(placed) + 1, **title, "gridPos": place})
        x, y = 0, y + 1
        for panel in row["panel"]:
            width, height = panel.get("width", 8), 8
            if panel["kind"] == "stat":
                width, height = 3, 4
            if x + width > _COLUMNS:
                x, y = 0, y + height
            place = {"x": x, "y": y, "w": width, "h": height}
            placed.append({"id": len(placed) + 1, **_panel(panel), "gridPos": place})
            x += width
        y += height
    return placed


def _panel(panel: dict[str, Any]) -> dict[str, Any]:
    form = {"stat": _stat, "heatmap": _heatmap, "table": _table}.get(panel["kind"], _lines)(panel)
    fields = {"defaults": {"unit": panel["unit"]}, "overrides": []} | form.pop("fieldConfig", {})
    asks = form.pop("asks", {"format": "time_series", "range": True})
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": _DATASOURCE,
            "expr": _query(query),
            "legendFormat": legend,
            **asks,
        }
        for i, (legend, query) in enumerate(panel["targets"])
    ]
    about = {"title": panel["title"], "description": panel["says"], "datasource": _DATASOURCE}
    return {**about, "targets": targets, "fieldConfig": fields, **form}


def _stat(panel: dict[str, Any]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"value": None, "color": "blue"}]
    if "red_from" in panel:
        steps = [
            {"value": None, "color": "green"},
            {"value": panel["red_from"], "color": "red"},
        ]
    if "red_below" in panel:
        steps = [
            {"value": None, "color": "red"},
            {"value": panel["red_below"], "color": "green"},
        ]
    defaults = {
        "unit": panel["unit"],
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    options = {"colorMode": "value", "graphMode": "area", "reduceOptions": last}
    fields = {"defaults": defaults, "overrides": []}
    return {"type": "stat", "fieldConfig": fields, "options": options}


def _lines(panel: dict[str, Any]) -> dict[str, Any]:
    stacked, log = panel["kind"] == "stack", panel["kind"] == "log_lines"
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 8,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    # A logarithmic axis has no 0.
    bounds = {} if log else {"min": 0} | ({"max": panel["top"]} if "top" in panel else {})
    color = {"mode": "palette-classic"}
    defaults = {"unit": panel["unit"], "color": color, "custom": custom, **bounds}
    overrides = [
        _override(name, "color", {"mode": "fixed", "fixedColor": color})
        for name, color in panel.get("colors", {}).items()
    ]
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    fields = {"defaults": defaults, "overrides": overrides}
    return {"type": "timeseries", "fieldConfig": fields, "options": options}


def _heatmap(panel: dict[str, Any]) -> dict[str, Any]:
    color = {"mode": "scheme", "scheme": "Oranges", "steps": 64, "reverse": False}
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": color | {"exponent": 0.5, "fill": "dark-orange"},
        "yAxis": {"unit": panel["unit"], "axisPlacement": "left"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": True},
    }
    return {"type": "heatmap", "options": options, "asks": {"format": "heatmap", "range": True}}


def _table(panel: dict[str, Any]) -> dict[str, Any]:
    """One row for each value of the label `by`, one column for each target."""
    names = {f"Value #{chr(ord('A') + i)}": n for i, (n, _) in enumerate(panel["targets"])}
    order = {"excludeByName": {"Time": True}, "renameByName": names, "indexByName": {}}
    fields = {
        "defaults": {"unit": panel["unit"]},
        "overrides": [_override(name, "unit", unit) for name, unit in panel["units"].items()],
    }
    return {
        "type": "table",
        "fieldConfig": fields,
        "options": {"showHeader": True},
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": order},
        ],
        "asks": {"format": "table", "instant": True, "range": False},
    }


def _override(name: str, what: str, value: object) -> dict[str, Any]:
    matcher = {"id": "byName", "options": name}
    return {"matcher": matcher, "properties": [{"id": what, "value": value}]}


def main() -> None:
    """Writes the file that Grafana reads."""
    FILE.write_text(json.dumps(dashboard(), indent=2) + "\n")


if __name__ == "__main__":
    main()
