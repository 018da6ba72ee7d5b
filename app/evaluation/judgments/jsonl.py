"""Rows of judged pairs, in files of any format, and judgments.jsonl, which `evaluate` keeps."""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from app.core.comparison import Side
from app.core.errors import InvalidRequestError
from app.evaluation.judgments.record import JudgedPair, Observation
from app.files.checking import LabeledRow, LabelReport, checked
from app.files.journal import LineFile
from app.files.labeled import check_labeled, check_words, known_comparison
from app.files.reading import FileRow, InputFormat, files_of, read_rows
from app.files.results import with_answers
from app.files.shapes import ComparisonShape, known_shape, shape_of_label
from app.ports import Generated

# The file of a folder of `evaluate`.
LOG_NAME = "judgments.jsonl"
# Every line that `judgment_line` writes begins with these bytes.
_LINE_BEGINS = b'{"dataset": "'

# The two fields of each signal. A line has the fields of at most one signal.
_SIGNALS = {
    "gaps": ("gap_fwd", "gap_rev"),
    "p": ("p_fwd", "p_rev"),
    "scores": ("score_a", "score_b"),
}
_SHARES = ("p_fwd", "p_rev", "label_mass")
# The fields that only `evaluate` writes.
_OF_EVALUATE: Mapping[str, TypeAdapter[Any]] = {
    "verbalized": TypeAdapter(Generated | None),
    "annotators": TypeAdapter(tuple[Annotated[float, Field(allow_inf_nan=False)], ...] | None),
    "samples": TypeAdapter(tuple[Generated, ...] | None),
    "failed": TypeAdapter(dict[Observation, str] | None),
    "asked": TypeAdapter(dict[Observation, str] | None),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRow(LabeledRow):
    """A row of a file of judged pairs, or the merged lines of a pair that `evaluate` wrote.

    Args:
        pair: The pair with the judge's answers; None without a label of a side or an answer.
    """

    pair: JudgedPair | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The content of files of judged pairs.

    Args:
        pairs: The pairs that count, in the order of the files.
        places: Place of the row of each pair; of the last one if several lines were merged.
        report: The outcome of the check of all rows. A missing answer is never read as 0.5.
        judges: Names of the judges of all rows with answers; None for an unnamed one.
        signal: Name of the signal that the rows have; None if no row has one.
    """

    pairs: tuple[JudgedPair, ...]
    places: tuple[str, ...]
    report: LabelReport
    judges: frozenset[str | None]
    signal: str | None = None

    def check_one_judge(self, source: object) -> None:
        """Raises InvalidRequestError if there are several judges."""
        if len(self.judges) > 1:
            names = ", ".join(sorted(name or "an unnamed one" for name in self.judges))
            raise InvalidRequestError(
                f"{source} has answers of several judges ({names}): give those of one at a time"
            )


def read_judgments(inputs: Sequence[Path], form: InputFormat | None = None) -> Judged:
    """Reads files of pairs that a judge has judged and people have labeled.

    Each row has a label and the judge's answers: `gap_fwd` and `gap_rev`, the
    label logit of response_a minus that of response_b with response_a shown first and second, or
    `gap_fwd` alone with 1 as `orders`; or `p_fwd` and `p_rev`, the probabilities or vote shares of
    response_a (0, 0.5 or 1 for a judge that gives verdicts only); or `score_a` and `score_b`, the
    scores of a reward model. It may have the other fields that `judgment_line` writes. Unknown
    fields are ignored. The judge's answers may also be where `scope-judge judge` writes them.

    Raises:
        InvalidRequestError: A file cannot be read, or an answer does not have this format; the
            message names the file and the line. Or judged rows have no known label.
    """
    form = form or InputFormat()
    lines: list[_Line] = []
    for file in files_of(inputs):
        lines += _lines(file, form)
    kind = _signal_of(lines)
    if kind is not None:
        check_labeled([(line.row, line.shape) for line in lines])
    rows = _rows(lines, kind)
    # A repeated pair may be the answer of another judge, which must not be lost in silence.
    judges = frozenset(row.pair.judge for row in rows if row.pair is not None)
    counted, report = checked(rows)
    kept = [row for row in counted if row.pair is not None]
    return Judged(
        pairs=tuple(row.pair for row in kept if row.pair is not None),
        places=tuple(row.place for row in kept),
        report=report,
        judges=judges,
        signal=kind,
    )


def judgment_line(pair: JudgedPair) -> str:
    """One line of judgments.jsonl; `read_judgments` reads it back."""
    fields: dict[str, object] = {"dataset": pair.dataset, "id": pair.id}
    for name in ("group", "label", "text", "judge", "fingerprint", "label_mass"):
        fields[name] = getattr(pair, name)
    fields["swapped"] = pair.swapped or None
    for signal in ("gaps", "p"):
        fields |= zip(_SIGNALS[signal], getattr(pair, signal) or (None, None), strict=True)
    if pair.orders == 1:
        fields |= {"gap_rev": None, "orders": 1}
    fields["verbalized"] = pair.verbalized and pair.verbalized._asdict()
    fields["samples"] = pair.samples and [sample._asdict() for sample in pair.samples]
    fields |= {"annotators": pair.annotators, "failed": pair.failed, "asked": pair.asked}
    given = {name: value for name, value in fields.items() if value is not None}
    # ASCII with escapes: a lone surrogate cannot be encoded in UTF-8.
    return json.dumps(given, allow_nan=False) + "\n"


def _lines(file: Path, form: InputFormat) -> Iterator["_Line"]:
    rows = list(read_rows(file, form.encoding))
    if not rows:
        raise InvalidRequestError(f"{file} has no rows")
    columns = {name for row in rows for name in row.fields}
    shape = form.shape or known_shape(columns) or shape_of_label(columns)
    check_words(rows, shape)
    for row, fields in zip(rows, with_answers(row.fields for row in rows), strict=True):
        yield _Line(row=row, fields=fields, shape=shape)


def _signal_of(lines: Iterable["_Line"]) -> str | None:
    kind = None
    for line in lines:
        signal = line.signal
        if signal and kind and signal != kind:
            raise line.error(
                f"{_SIGNALS[signal][0]} after lines with {_SIGNALS[kind][0]}: a file must hold the "
                "answers of one judge"
            )
        kind = kind or signal
    return kind


def _rows(lines: Iterable["_Line"], kind: str | None) -> Collection[JudgedRow]:
    """The row of each line; the lines of a pair that `evaluate` wrote are one row."""
    rows: dict[tuple[str, ...], JudgedRow] = {}
    for line in lines:
        row = line.judged(expected=_SIGNALS[kind or "p"])
        # Ids in files of users may repeat: only lines that `evaluate` wrote are merged.
        if line.is_of_evaluate and row.pair is not None:
            key: tuple[str, ...] = (row.pair.dataset, row.pair.id)
            earlier = rows[key].pair if key in rows else None
            if earlier is not None:
                row = replace(row, pair=earlier.updated_by(row.pair))
        else:
            key = (row.place,)
        rows[key] = row
    return rows.values()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """One row of a file, with the answers among its fields.

    Args:
        fields: Its columns, and the fields of its result.
        shape: How the row holds its label, and its texts if they are known.
    """

    row: FileRow
    fields: Mapping[str, Any]
    shape: ComparisonShape

    @property
    def place(self) -> str:
        """File, and line or row number."""
        return self.row.place

    def error(self, reason: str) -> InvalidRequestError:
        """An error that names the file and the line."""
        return InvalidRequestError(f"{self.place}: {reason}")

    @property
    def signal(self) -> str | None:
        """Name of the signal that the line has, complete or not; None without a signal."""
        for signal, names in _SIGNALS.items():
            if any(self.fields.get(name) is not None for name in names):
                return signal
        return None

    @property
    def is_of_evaluate(self) -> bool:
        """Whether `evaluate` wrote the line."""
        return "asked" in self.fields

    def judged(self, *, expected: tuple[str, str]) -> JudgedRow:
        """The row with its pair, or the reason why it cannot be used.

        Args:
            expected: Fields to name as missing where the line has no answer at all.

        Raises:
            InvalidRequestError: A field has a wrong type or is out of range.
        """
        label, problem = self.shape.label_in(self.row.fields), None
        # Every answer is read before any line is left out: a bad value is always an error.
        pair = self._pair("B" if label == "B" else "A")
        has_side = label in ("A", "B")
        missing = self._missing()
        if not missing and not self.is_of_evaluate and not pair.has_answers:
            missing = list(expected)
        if missing and has_side:
            problem = f"no {' and '.join(missing)}"
        return JudgedRow(
            place=self.place,
            comparison=known_comparison(self.row, self.shape),
            label=label,
            problem=problem,
            unique=self.is_of_evaluate,
            pair=pair if has_side and problem is None else None,
        )

    def _pair(self, label: Side) -> JudgedPair:
        answers: dict[str, Any] = {}
        if self.signal and not self._missing():
            one, other = self._two_numbers(self.signal)
            if self.signal == "scores":
                # A reward model scores each response by itself: both orders have the same gap.
                answers |= {"gaps": (one - other, one - other), "orders": 1}
                if not math.isfinite(one - other):
                    raise self.error("score_a and score_b are too far apart")
            else:
                answers[self.signal] = one, other
                # A column of the user may be called orders, too.
                if self._says_one_order and one == other:
                    answers["orders"] = 1
        if self.is_of_evaluate and not (self.fields.get("dataset") and self.fields.get("id")):
            raise self.error("a line with asked needs dataset and id")
        for name, adapter in _OF_EVALUATE.items():
            try:
                answers[name] = adapter.validate_python(self.fields.get(name)) or None
            except ValidationError as exc:
                raise self.error(f"{name}: {exc.errors()[0]['msg']}") from None
        return JudgedPair(
            dataset=self._string("dataset") or "",
            id=self._string("id") or self.place,
            group=self._string("group"),
            label=label,
            swapped=self.fields.get("swapped") is True,
            text=self._string("text"),
            judge=self._string("judge"),
            fingerprint=self._string("fingerprint"),
            label_mass=self._label_mass(),
            **answers,
        )

    def _missing(self) -> list[str]:
        """Fields that the line's signal lacks."""
        names = [*_SIGNALS[self.signal]] if self.signal else []
        if self.signal == "gaps" and self._says_one_order:
            names.remove("gap_rev")
        return [name for name in names if self.fields.get(name) is None]

    @property
    def _says_one_order(self) -> bool:
        return self.fields.get("orders") in (1, "1")

    def _two_numbers(self, signal: str) -> tuple[float, float]:
        one, other = _SIGNALS[signal]
        first = self._number(one, self.fields[one])
        # `_missing` has checked that the other number is there, or is the same.
        given = self.fields.get(other)
        return first, first if given is None else self._number(other, given)

    def _number(self, name: str, value: object) -> float:
        number = math.nan
        # A bool is an int in Python; an int of 400 digits has no float. CSV has texts only.
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            if isinstance(value, str) and self.row.delimiter == ";":
                # Where semicolons separate, Excel writes a decimal comma.
                value = value.replace(",", ".")
            with suppress(OverflowError, ValueError):
                number = float(value)
        if not math.isfinite(number):
            raise self.error(f"{name} is not a finite number")
        if name in _SHARES and not 0.0 <= number <= 1.0:
            raise self.error(f"{name} must be in [0, 1], got {number:g}")
        return number

    def _label_mass(self) -> float | None:
        value = self.fields.get("label_mass")
        return None if value is None else self._number("label_mass", value)

    def _string(self, name: str) -> str | None:
        """A string, a number as a string, or None where the field is missing."""
        value = self.fields.get(name)
        return None if value is None else str(value)


class JudgmentLog:
    """An append-only judgments.jsonl of one judge, with a single writing process.

    Raises:
        InvalidRequestError: Another process writes the file, it cannot be opened, or `evaluate` did
            not write it. The file is then unchanged.
    """

    def __init__(self, file: Path, *, judge: str) -> None:
        self._judge = judge
        self._lines = LineFile(
            file,
            begins=_LINE_BEGINS,
            foreign="was not written by evaluate: give another --out, or evaluate this file with "
            "--from",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._lines.close()

    def read(self) -> dict[tuple[str, str], JudgedPair]:
        """All pairs of the file, by data set and id.

        Raises:
            InvalidRequestError: A line does not have the format of judgments.jsonl, or holds the
                answers of another judge.
        """
        file = self._lines.path
        if not file.stat().st_size:
            return {}
        pairs = read_judgments([file]).pairs
        for pair in pairs:
            if pair.judge != self._judge:
                raise InvalidRequestError(
                    f"{file} holds judgments of {pair.judge or 'an unknown judge'}, not of "
                    f"{self._judge}: give another --out"
                )
        return {(pair.dataset, pair.id): pair for pair in pairs}

    def append(self, pairs: Iterable[JudgedPair]) -> None:
        """Appends a line for each pair, durably.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        self._lines.append("".join(map(judgment_line, pairs)))
