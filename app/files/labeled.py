"""Pairs with labels in files, ready for the check of `app.files.checking`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core.comparison import Comparison, LabeledComparison, Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError, RequestError
from app.core.messages import Fields
from app.files.checking import LabeledRow
from app.files.reading import WRONG_HEADER, FileRow, InputFormat, files_of, read_rows
from app.files.shapes import (
    REQUIRED,
    ComparisonShape,
    known_shape,
    listed,
    named,
    suggested_map,
    unread_words,
)

# Unknown words of a label that a message has.
_SHOWN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePair(LabeledRow):
    """A row of a file and the pair that it holds; its fields are {} without a comparison."""

    row: FileRow
    shape: ComparisonShape
    fields: Fields


def read_pairs(inputs: Sequence[Path], form: InputFormat) -> list[FilePair]:
    """Reads all rows of files; a row that holds no comparison has its problem.

    Raises:
        InvalidRequestError: A file cannot be read, or has no rows; no row has a comparison;
            a label is an unknown word; or no row has one. The message has a map to start from.
    """
    pairs: list[FilePair] = []
    for path in files_of(inputs):
        rows = list(read_rows(path, form.encoding))
        if not rows:
            raise InvalidRequestError(f"{path} has no rows")
        shape = shape_of_rows(rows, form, labelled=True)
        check_words(rows, shape)
        pairs += [_pair(row, shape) for row in rows]
    check_labeled([(pair.row, pair.shape) for pair in pairs])
    return pairs


def check_words(rows: Sequence[FileRow], shape: ComparisonShape, whole: str = "") -> None:
    """Refuses labels that are unknown words: nobody knows what a set of the others would mean.

    The message has the map `whole`, or else one of a comparison.

    Raises:
        InvalidRequestError: The message has a map to start from.
    """
    fields = [row.fields for row in rows]
    unread = unread_words(fields, shape.label, shape.words) if shape.label else []
    if unread:
        first = next(row for row in rows if str(row.fields.get(shape.label)) == unread[0])
        words = ", ".join(repr(word[:40]) for word in unread[:_SHOWN])
        more = ", ..." if len(unread) > _SHOWN else ""
        whole = whole or suggested_map(fields, shape, labelled=True)
        raise InvalidRequestError(
            f"{first.place}: the labels {words}{more} in {shape.label} are unknown words: correct "
            "these cells, leave them empty, or say what the words mean as A=WORD, B=WORD or "
            f"tie=WORD in --map {whole}"
        )


def check_labeled(rows: Sequence[tuple[FileRow, ComparisonShape]]) -> None:
    """Refuses rows of which none has a label, by the shape of its label.

    Raises:
        InvalidRequestError: The message has a map to start from.
    """
    if any(shape.label_in(row.fields) is not None for row, shape in rows):
        return
    first, shape = rows[0]
    raise InvalidRequestError(
        f"{first.place}: there is no label: the columns are {listed(first.fields)}; A, B or tie is "
        f"expected in {shape.label}: name the column of the label with --map "
        f"{suggested_map([row.fields for row, _ in rows], shape, labelled=True)}"
    )


def shape_of_rows(
    rows: Sequence[FileRow], form: InputFormat, *, labelled: bool = False
) -> ComparisonShape:
    """Finds the shape of a file by the columns of all its rows.

    Raises:
        InvalidRequestError: No shape fits, or no row has a comparison.
    """
    # JSON Lines leave out the label of a battle that nobody has labeled.
    columns = dict.fromkeys(name for row in rows for name in row.fields)
    shape, first = form.shape or known_shape(columns), rows[0]
    needed = () if shape is None else dict.fromkeys((*shape.columns, *shape.mapped))
    absent = [name for name in needed if name not in columns]
    if shape is None or absent:
        wrong = f"the columns are {listed(columns)}, and a comparison needs {', '.join(REQUIRED)}"
        if absent:
            wrong = f"{named(absent)} missing; there is {listed(columns)}"
        whole = suggested_map([row.fields for row in rows], shape, labelled=labelled)
        advice = f"name the columns with --map {whole}"
        # No map can find three columns in a title, which stands alone in its row.
        if len(columns) < len(REQUIRED):
            advice = WRONG_HEADER
        raise InvalidRequestError(f"{first.place}: {wrong}: {advice}")
    # Whether a row has a value in each column -> the problem of the first such row.
    problems: dict[bool, str] = {}
    for row in rows:
        try:
            shape.fields(row.fields)
        except RequestError as exc:
            complete = all(row.fields.get(name) is not None for name in shape.columns)
            problems.setdefault(complete, f"{row.place}: {exc.detail}")
        else:
            return shape
    raise InvalidRequestError(problems[max(problems)])


def _pair(row: FileRow, shape: ComparisonShape) -> FilePair:
    fields: Fields = {}
    comparison = label = problem = None
    try:
        whole = shape.fields(row.fields)
        # An example has no criterion.
        fields = {name: whole[name] for name in REQUIRED}
        comparison = comparison_of(fields)
        label = shape.label_in(row.fields)
        if label is not None:
            LabeledComparison(comparison=comparison, label=label)
    except RequestError as exc:
        problem = exc.detail
    return FilePair(
        place=row.place,
        comparison=comparison,
        label=label,
        problem=problem,
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


def known_comparison(row: FileRow, shape: ComparisonShape) -> Comparison | None:
    """The comparison of a row of results; None if it has no texts any more."""
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
