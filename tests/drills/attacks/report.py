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
_HEAD = ("attack", "what the attacker does", "before", "after")


def kept() -> dict[str, dict[str, Any]]:
    """The figures in docs/measured/drills.json: column -> attack -> figures."""
    if not FILE.exists():
        return {"before": {}, "after": {}}
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {"before": content["before"], "after": content["after"]}


def keep(outcomes: Mapping[str, Outcome], column: Column) -> None:
    """Writes one column's new figures into the JSON file and the table of the document."""
    columns = kept()
    columns[column] |= {name: outcome.as_json() for name, outcome in outcomes.items()}
    write_json("drills", columns)
    put_between_markers("drills", markdown(columns), DRILLS)


def markdown(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """The table for the document."""
    rows = []
    for name, attack in ATTACKS.items():
        cells = [_cell(columns[column].get(name)) for column in ("before", "after")]
        rows.append([f"`{name}`", *map(_plain, [attack.what, *cells])])
    return table(_HEAD, rows)


def _plain(cell: str) -> str:
    return cell.replace("|", "/").replace("\n", " ")


def _cell(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "not run"
    parts = [part for part in (figures["broke"], figures["figure"]) if part]
    seen = figures["seen"]
    if seen is not None:
        parts.append(
            f"memory {seen['idle_mib']:.0f} to {seen['peak_mib']:.0f} MiB, "
            f"{seen['after_mib']:.0f} MiB after"
        )
        parts.append(
            f"/healthz p99 {seen['healthz_p99_s']:.2f} s, slowest {seen['healthz_max_s']:.2f} s"
        )
        answered = seen["judge"].get("200", 0)
        parts.append(f"/judge {answered} of {sum(seen['judge'].values())} answered")
    return "; ".join(parts)
