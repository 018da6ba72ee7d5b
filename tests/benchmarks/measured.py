"""The file of figures: each one is in the run that measured it last, with the hash of its code.

docs/tools/make_speed_tables.py makes the tables of the pages from docs/measured/bench.json.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.code import ROOT, code_hash
from tests.benchmarks.measurement import Figure, Result
from tests.benchmarks.report import figure_json

MEASURED = ROOT / "docs" / "measured" / "bench.json"


class Entry(NamedTuple):
    """A figure in JSON, and the run that measured it."""

    figure: dict[str, Any]
    run: dict[str, Any]


class FigureFile:
    """A JSON file with `runs`.

    Args:
        path: The file; another figure of the same name in it is replaced, all others stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: list[dict[str, Any]] = []
        if path.exists():
            self._runs = json.loads(path.read_text(encoding="utf-8"))["runs"]

    def take(self, result: Result, run: dict[str, Any]) -> None:
        """Writes a figure of a run; one without samples replaces none that has samples.

        Args:
            result: The figure.
            run: The facts of the run.
        """
        known = self.entries.get(result.name)
        if not isinstance(result, Figure) and known and "ours" in known.figure:
            return
        for other in self._runs:
            other["figures"] = [x for x in other["figures"] if x["name"] != result.name]
        runs = [other for other in self._runs if other["figures"]]
        own = next((other for other in runs if other["made"] == run["made"]), None)
        if own is None:
            own = run | {"figures": []}
            runs.append(own)
        own["figures"].append(figure_json(result) | {"code": code_hash(result.name)})
        self._runs = runs
        text = json.dumps({"runs": runs}, indent=1, allow_nan=False)
        self._path.write_text(text + "\n", encoding="utf-8")

    @property
    def entries(self) -> dict[str, Entry]:
        """The figures by name."""
        return dict(_by_name(self._runs))


def _by_name(runs: list[dict[str, Any]]) -> Iterator[tuple[str, Entry]]:
    for run in runs:
        facts = {name: value for name, value in run.items() if name != "figures"}
        for figure in run["figures"]:
            yield figure["name"], Entry(figure, facts)
