"""The dashboard's queries to Prometheus, as Grafana would send them."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.unit.docs.markdown import ROOT

FILE = ROOT / "deploy/grafana/dashboards/scope-judge.json"

_NAMES = re.compile(r"\b(?:scope_|scope:|vllm:|process_|python_)[a-zA-Z0-9_:]+|\bup\b|\bALERTS\b")


class Query(NamedTuple):
    """One query of a panel."""

    panel: str
    legend: str
    expression: str


def load() -> dict[str, Any]:
    """The dashboard's JSON."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    """All panels with queries."""
    return [panel for panel in load()["panels"] if panel["type"] != "row"]


def substituted(expression: str, *, rate_interval_s: int) -> str:
    """An expression with every variable replaced by its "All" value."""
    for name, value in {
        "$__rate_interval": f"{rate_interval_s}s",
        "$instance": ".*",
        "$calibration": ".*",
    }.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def queries(*, rate_interval_s: int) -> Iterator[Query]:
    """Yields every query of every panel, and of the annotations on the time axis."""
    for panel in panels():
        for target in panel["targets"]:
            expression = substituted(target["expr"], rate_interval_s=rate_interval_s)
            yield Query(panel["title"], target["legendFormat"], expression)
    for mark in load()["annotations"]["list"]:
        expression = substituted(mark["expr"], rate_interval_s=rate_interval_s)
        yield Query(mark["name"], "", expression)


def metric_names(expression: str) -> set[str]:
    """The metrics that an expression names, without labels and their values."""
    return set(_NAMES.findall(re.sub(r'"[^"]*"', '""', expression)))
