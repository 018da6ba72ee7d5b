"""The pairs of a run that the service drew for audits, with their texts, beside its output.

People who label an audit should know neither the verdict nor the models, so a row has the id and
the texts alone. A service keeps no texts unless SCOPE_AUDIT_TEXTS is on: what is lost here can then
not be labeled.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from app.cli.console import say
from app.cli.running.rows import Item, write_all
from app.files.reading import DRAWN_ENDING, read_rows
from app.files.shapes import REQUIRED


def drawn_path(out: Path) -> Path:
    """The file of the drawn pairs of a run that writes `out`."""
    return out.with_name(f"{out.name}{DRAWN_ENDING}")


def keep_drawn(
    out: Path, items: Iterable[Item], results: Mapping[str, Mapping[str, Any]], *, kept: str
) -> None:
    """Writes the drawn pairs of a run, after those of earlier runs with the same output."""
    path = drawn_path(out)
    drawn = {
        audit["id"]: {"audit": audit["id"], **{name: item.fields[name] for name in REQUIRED}}
        for item in items
        if isinstance(item.fields, dict)
        if (audit := results[item.key].get("audit")) is not None
    }
    if drawn:
        earlier = [row.fields for row in read_rows(path)] if path.exists() else []
        rows = {row.get("audit"): row for row in earlier} | drawn
        write_all(path, list(rows.values()), kept=kept)
        say(
            f"{len(drawn)} pairs were drawn for audits: add a column label to {path}, and send it "
            "with `scope-judge audits label`"
        )
