"""Pairs with labels in files, ready for the check of `app.files.checking`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.comparison import Comparison, Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError, RequestError
from app.core.messages import Fields
from app.files.checking import LabeledRow
from app.files.reading import FileRow, InputFormat, files_of, read_rows
from app.files.shapes import (
    LABEL,
    PAIRS,
    REQUIRED,
    SHAPES,
    ComparisonShape,
    label_in,
    listed,
)
from app.files.suggestion import shape_for, suggested_map


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePair(LabeledRow):
    """A row of a file and the pair that it holds.

    Args:
        path: The file.
        row: The row.
        shape: The shape of its file.
        fields: question, response_a and response_b, as in POST /judge; {} without a comparison.
    """

    path: Path
    row: FileRow
    shape: ComparisonShape
    fields: Fields


def read_pairs(
    inputs: Sequence[Path], form: InputFormat, *, labelled: bool = True
) -> list[FilePair]:
    """Reads all rows of files; a row that holds no comparison has its problem.

    Args:
        inputs: Files, folders and patterns.
        form: How the rows are written.
        labelled: Whether labels are read. Without, every row is unlabeled.

    Raises:
        InvalidRequestError: A file cannot be read, or has no rows. Or its first row has no
            comparison, its first label is an unknown word, or it has no label: its other rows will
            hardly be better. The message has a map to start from.
    """
    pairs: list[FilePair] = []
    for path in files_of(inputs):
        rows = list(read_rows(path, form.encoding))
        if not rows:
            raise InvalidRequestError(f"{path} has no rows")
        shape = shape_of_rows(rows, form)
        pairs += [_pair(path, row, shape, labelled=labelled) for row in rows]
        if labelled:
            check_words(rows, shape)
    if labelled:
        refuse_unlabeled([pair.row for pair in pairs], pairs[0].shape)
    return pairs


def check_words(rows: Sequence[FileRow], shape: ComparisonShape | None) -> None:
    """Refuses a file whose first label is an unknown word.

    Args:
        rows: All rows of the file.
        shape: The shape of its rows; None to look for the label of any shape.

    Raises:
        InvalidRequestError: The message has a map to start from.
    """
    for row in rows:
        try:
            if label_in(row.fields, shape) is not None:
                return
        except InvalidComparisonError as exc:
            advice = _advice(rows, shape, "say what the words mean")
            raise InvalidRequestError(f"{row.place}: {exc.detail}{advice}") from None


def refuse_unlabeled(rows: Sequence[FileRow], shape: ComparisonShape | None) -> None:
    """Refuses rows of which none has a label.

    Raises:
        InvalidRequestError: The message has a map to start from.
    """
    if any(_is_labeled(row, shape) for row in rows):
        return
    expected = shape.label if shape is not None else LABEL
    advice = _advice(rows, shape, "name the column of the label")
    raise InvalidRequestError(
        f"{rows[0].place}: there is no label: the columns are {listed(rows[0].fields)}; A, B or "
        f"tie is expected in {expected}{advice}"
    )


def _is_labeled(row: FileRow, shape: ComparisonShape | None) -> bool:
    try:
        return label_in(row.fields, shape) is not None
    except InvalidComparisonError:
        return True


def _advice(rows: Sequence[FileRow], shape: ComparisonShape | None, what: str) -> str:
    """The end of a message, with a map to start from; "" for a data set that takes no map."""
    if shape is not None and shape.name in SHAPES and shape.name != PAIRS:
        return ""
    columns = dict.fromkeys(name for row in rows for name in row.fields)
    return f": {what} with --map {suggested_map(columns, shape, labelled=True)}"


def shape_of_rows(rows: Sequence[FileRow], form: InputFormat) -> ComparisonShape:
    """Finds the shape of a file by the columns of all its rows.

    Raises:
        InvalidRequestError: No shape fits, or the first complete row has no comparison.
    """
    first = rows[0]
    try:
        # JSON Lines leave out the label of a battle that nobody has labeled.
        shape = form.shape or shape_for({name: None for row in rows for name in row.fields})
        complete = (
            row for row in rows if all(row.fields.get(name) is not None for name in shape.columns)
        )
        first = next(complete, first)
        shape.fields(first.fields)
    except RequestError as exc:
        raise InvalidRequestError(f"{first.place}: {exc.detail}") from None
    return shape


def _pair(path: Path, row: FileRow, shape: ComparisonShape, *, labelled: bool) -> FilePair:
    fields: Fields = {}
    comparison = label = problem = None
    try:
        whole = shape.fields(row.fields)
        # An example has no criterion.
        fields = {name: whole[name] for name in REQUIRED}
        comparison = comparison_of(fields)
        label = shape.label_in(row.fields) if labelled else None
    except RequestError as exc:
        problem = exc.detail
    return FilePair(
        place=row.place,
        comparison=comparison,
        label=label,
        problem=problem,
        path=path,
        row=row,
        shape=shape,
        fields=fields,
    )


def comparison_of(fields: Fields) -> Comparison:
    """The comparison of a question and two responses.

    Raises:
        InvalidComparisonError: A text is blank or is not Unicode, or the numbers of texts
            differ.
    """
    comparison = Comparison(
        _turns(fields["question"]), _texts(fields["response_a"]), _texts(fields["response_b"])
    )
    try:
        "".join(comparison.texts).encode()
    except UnicodeEncodeError:
        raise InvalidComparisonError(
            "the text is not valid Unicode: it contains half of a surrogate pair"
        ) from None
    return comparison


def known_comparison(row: FileRow, shape: ComparisonShape | None) -> Comparison | None:
    """The comparison of a row of results; None if it has no texts any more."""
    if shape is None:
        return None
    try:
        return comparison_of(shape.fields(row.fields))
    except RequestError:
        return None


def _turns(question: str | list[dict[str, Any]]) -> tuple[Turn, ...]:
    if isinstance(question, str):
        return (Turn("user", question),)
    return tuple(Turn(turn["role"], turn["content"]) for turn in question)


def _texts(response: str | list[str]) -> tuple[str, ...]:
    return (response,) if isinstance(response, str) else tuple(response)
