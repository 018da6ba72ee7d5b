"""The table of attacks, in the terminal and in docs/measured/drills.md, and its JSON."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from tests.drills.attacks.catalogue import ATTACKS
from tests.drills.attacks.outcome import Outcome
from tests.drills.running import DRILLS, MEASURED, write_json
from tests.markdown import put_between_markers, table

Column = Literal["before", "after"]
FILE = MEASURED / "drills.json"
# The attacks with a row in the document; the JSON file has all.
SHOWN = (
    "compressed-bodies",
    "kill-during-calibrate",
    "store-file-removed",
    "alarm-of-others",
)
_HEAD = ("attack", "what the attacker does", "result")


def kept() -> dict[str, dict[str, Any]]:
    """The figures in docs/measured/drills.json: column -> attack -> figures."""
    if not FILE.exists():
        return {"before": {}, "after": {}}
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {"before": content["before"], "after": content["after"]}


def keep(outcomes: Mapping[str, Outcome], column: Column) -> None:
    """Writes one column's new figures into the JSON file; the document has those of "after"."""
    columns = kept()
    columns[column] |= {name: outcome.as_json() for name, outcome in outcomes.items()}
    write_json("drills", columns)
    put_between_markers("targets", targets(columns["after"]), DRILLS)
    put_between_markers("drills", markdown(columns["after"]), DRILLS)


def targets(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """How the watched attacks met the targets, as a list for the document."""
    watched = {name: each["seen"] for name, each in figures.items() if each["seen"]}
    slowest = max(watched, key=lambda name: watched[name]["healthz_p99_s"])
    slowest_s = watched[slowest]["healthz_p99_s"]
    answered = sum(seen["judge"].get("200", 0) for seen in watched.values())
    asked = sum(sum(seen["judge"].values()) for seen in watched.values())
    missed = [f"`{name}`: {fault}" for name, each in figures.items() for fault in each["faults"]]
    return "\n".join(
        [
            f"- Key holder: {answered:,} of {asked:,} judgments were answered.",
            f"- `/healthz`: the slowest 99th percentile was {slowest_s:.2f} s (`{slowest}`).",
            f"- Missed targets: {'; '.join(missed) or 'none'}.",
        ]
    )


def markdown(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The table for the document."""
    rows = []
    for name in SHOWN:
        cells = map(_plain, [ATTACKS[name].what, _result(figures.get(name))])
        rows.append([f"`{name}`", *cells])
    return table(_HEAD, rows)


def _plain(cell: str) -> str:
    return cell.replace("|", "/").replace("\n", " ")


def _result(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "not run"
    return "; ".join(part for part in (figures["broke"], figures["figure"]) if part)
