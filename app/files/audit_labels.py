"""Labels of audits in files, as a person or a labeling tool has written them."""

import re
from collections.abc import Sequence
from pathlib import Path

from app.core.comparison import MIRRORED, Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.fingerprint import drawn_pair, is_reversed
from app.files.reading import files_of, read_rows
from app.files.shapes import is_empty, label_of, named_columns, spelled

_FIELDS = ("audit", "label", "reason")


def read_audit_labels(
    inputs: Sequence[Path], columns: str | None, encoding: str | None
) -> tuple[dict[str, Label], dict[str, str]]:
    """Reads the rows of files with the columns audit, label and reason, which a map may rename.

    Returns:
        Audit -> its label, and audit -> the reason why nobody can label it.

    Raises:
        InvalidRequestError: A file cannot be read, no row has both columns, a row cannot be used,
            or two rows about a pair differ.
    """
    named = named_columns(columns, _FIELDS)
    rows = [row for path in files_of(inputs) for row in read_rows(path, encoding)]
    known = dict.fromkeys(column for row in rows for column in row.fields)
    absent = [field for field in ("audit", "label") if named.columns[field] not in known]
    if absent:
        raise InvalidRequestError(
            f"there is no column {' or '.join(named.columns[field] for field in absent)}: the "
            f"columns are {', '.join(known)}; name them with --map "
            + ",".join(f"{field}=COLUMN" for field in absent)
        )
    labels: dict[str, Label] = {}
    reasons: dict[str, str] = {}
    places: dict[str, str] = {}
    for row in rows:
        audit, word, reason = (row.fields.get(named.columns[field]) for field in _FIELDS)
        if is_empty(word):
            continue
        if not isinstance(audit, str) or re.fullmatch("[0-9a-f]{32}", audit) is None:
            raise InvalidRequestError(f"{row.place}: this is not the id of an audit")
        closed = spelled(word) == "none"
        if closed and is_empty(reason):
            raise InvalidRequestError(f"{row.place}: the label none needs a reason")
        try:
            label: Label = "tie" if closed else label_of(word, named.words)
        except InvalidComparisonError as exc:
            raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
        # The id of one order of the pair, whichever order the row has.
        name = f"{drawn_pair(audit) << 1:032x}"
        in_order = MIRRORED[label] if is_reversed(audit) else label
        told = " ".join(str(reason).split())
        earlier = labels.get(name, reasons.get(name))
        if earlier is not None and earlier != (told if closed else in_order):
            raise InvalidRequestError(
                f"{places[name]} and {row.place} answer differently about the same pair: delete one"
            )
        if closed:
            reasons[name] = told
        else:
            labels[name] = in_order
        places[name] = row.place
    return labels, reasons
