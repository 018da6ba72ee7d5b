"""The pairs of a run that the service drew for audits, with their texts, beside its output.

People who label an audit should know neither the verdict nor the models, so a row has the id and
the texts alone. A service keeps no texts unless SCOPE_AUDIT_TEXTS is on: what is lost here can then
not be labeled.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from app.cli.running.rows import Item, write_all
from app.files.reading import DRAWN_ENDING, read_rows
from app.files.shapes import REQUIRED


def drawn_path(out: Path) -> Path:
    """The file of the drawn pairs of a run that writes `out`."""
    return out.with_name(f"{out.name}{DRAWN_ENDING}")


def keep_drawn(
    out: Path, items: Iterable[Item], results: Mapping[str, Mapping[str, Any]], *, kept: str
) -> int:
    """Writes the drawn pairs of a run, after those of earlier runs with the same output.

    A pair that is in the file already stays as it is, because it may have been labeled there.

    Returns:
        The number of pairs of this run that were drawn.
    """
    path = drawn_path(out)
    drawn = {
        audit["id"]: {"audit": audit["id"], **{name: item.fields[name] for name in REQUIRED}}
        for item in items
        if isinstance(item.fields, dict)
        if (audit := results[item.key].get("audit")) is not None
    }
    earlier = [row.fields for row in read_rows(path)] if drawn and path.exists() else []
    known = {row.get("audit") for row in earlier}
    new = [row for audit, row in drawn.items() if audit not in known]
    if new:
        write_all(path, [*earlier, *new], kept=kept)
    return len(drawn)
