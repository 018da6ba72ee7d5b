"""Labels of audits in files, as a person or a labeling tool has written them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.fingerprint import drawn_pair, is_reversed
from app.files.checking import LabeledRow
from app.files.labels import NamedColumns, is_empty, label_of, named_columns, spelled
from app.files.reading import FileRow, files_of, read_rows

_FIELDS = ("audit", "label", "reason")
_SWAPPED: dict[Label, Label] = {"A": "B", "B": "A", "tie": "tie"}


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLabelRow(LabeledRow):
    """The label of an audit.

    Its `name` is the id of one order of the pair, whichever order the file has, and `label` is in
    that order: rows about both orders then agree or contradict each other.
    """

    @property
    def sent(self) -> dict[str, Any]:
        """The row as POST /audits/labels takes it."""
        row = {"id": self.name, "label": self.answer}
        return row if self.reason is None else {**row, "reason": self.reason}


def read_audit_labels(
    inputs: Sequence[Path], columns: str | None, encoding: str | None
) -> list[AuditLabelRow]:
    """Reads the rows of files with the columns audit, label and reason.

    Args:
        inputs: Files, folders and patterns.
        columns: Map of columns and words, as `--map` has it; None for the usual names.
        encoding: Encoding of text without a byte order mark; None for UTF-8.

    Raises:
        InvalidRequestError: A file cannot be read, or no row has both columns.
    """
    named = named_columns(columns or "", _FIELDS) if columns else None
    rows = [row for path in files_of(inputs) for row in read_rows(path, encoding)]
    names = {field: field if named is None else named.columns[field] for field in _FIELDS}
    known = dict.fromkeys(column for row in rows for column in row.fields)
    for field in ("audit", "label"):
        if names[field] not in known:
            raise InvalidRequestError(
                f"there is no column {names[field]}: the columns are {', '.join(known)}; name it "
                f"with --map {field}=COLUMN"
            )
    return [_row(row, names, named) for row in rows]


def _row(row: FileRow, names: dict[str, str], named: NamedColumns | None) -> AuditLabelRow:
    audit, value = row.fields.get(names["audit"]), row.fields.get(names["label"])
    if not isinstance(audit, str) or re.fullmatch("[0-9a-f]{32}", audit) is None:
        return AuditLabelRow(place=row.place, problem="this is not the id of an audit")
    name = f"{drawn_pair(audit) << 1:032x}"
    if is_empty(value):
        return AuditLabelRow(place=row.place, name=name)
    if spelled(value) == "none":
        reason = row.fields.get(names["reason"])
        if is_empty(reason):
            return AuditLabelRow(place=row.place, problem="the label none needs a reason")
        return AuditLabelRow(place=row.place, name=name, reason=" ".join(str(reason).split()))
    try:
        label = label_of(value) if named is None else label_of(value, named.words)
    except InvalidComparisonError as exc:
        return AuditLabelRow(place=row.place, problem=exc.detail)
    in_order = _SWAPPED[label] if is_reversed(audit) else label
    return AuditLabelRow(place=row.place, name=name, label=in_order)
