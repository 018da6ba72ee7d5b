"""Rows of judged pairs, in files of any format, and the lines of judgments.jsonl."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from app.core.comparison import Label, Side
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.evaluation.judgments.record import JudgedPair, Observation
from app.files.reading import files_of, read_rows
from app.files.results import FIELDS, result_columns
from app.files.shapes import ComparisonShape, label_in
from app.ports import Generated

# Every line that `judgment_line` writes begins with these bytes.
LINE_BEGINS = b'{"dataset": "'

# The two fields of each signal. A line has the fields of at most one signal.
_SIGNALS = {
    "gaps": ("gap_fwd", "gap_rev"),
    "p": ("p_fwd", "p_rev"),
    "scores": ("score_a", "score_b"),
}
_VERDICTS = ("verdict_fwd", "verdict_rev")
_SHARES = ("p_fwd", "p_rev", "label_mass")


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A row that was left out.

    Args:
        place: File, and line or row number.
        reason: The missing fields.
    """

    place: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The content of files of judged pairs.

    Args:
        pairs: In the order of the files. Several lines of one pair are merged.
        places: Place of the last row of each pair.
        ties: Number of rows with label "tie", which are left out.
        skipped: Rows without a label or without an answer. A missing answer is never read as 0.5.
        signal: Name of the signal that the rows have; None if no row has one.
    """

    pairs: tuple[JudgedPair, ...]
    places: tuple[str, ...]
    ties: int
    skipped: tuple[Skipped, ...]
    signal: str | None = None


def read_judgments(inputs: Sequence[Path], shape: ComparisonShape | None = None) -> Judged:
    """Reads files of pairs that a judge has judged and people have labelled.

    Each row has a label (see `label_in`) and the judge's answers: `gap_fwd` and `gap_rev`, the
    label logit of response_a minus that of response_b with response_a shown first and second; or
    `p_fwd` and `p_rev`, the probabilities or vote shares of response_a; or `score_a` and `score_b`,
    the scores of a reward model; or `verdict_fwd` and `verdict_rev`. It may have the other fields
    that `judgment_line` writes. Unknown fields are ignored. The judge's answers may also be where
    `scope-judge judge` writes them.

    Args:
        inputs: Files of any format, folders and patterns.
        shape: The shape of the rows, which tells the label; None to look for one.

    Raises:
        InvalidRequestError: A file cannot be read, or a row does not have this format. The message
            names the file and the line.
    """
    return _collected(line for file in files_of(inputs) for line in _lines(file, shape))


def judgment_line(pair: JudgedPair) -> str:
    """One line of judgments.jsonl; `read_judgments` reads it back."""
    gap_fwd, gap_rev = pair.gaps or (None, None)
    p_fwd, p_rev = pair.p or (None, None)
    score_a, score_b = pair.scores or (None, None)
    verdict_fwd, verdict_rev = pair.verdicts or (None, None)
    samples = pair.samples
    fields: dict[str, object] = {
        "dataset": pair.dataset,
        "id": pair.id,
        "group": pair.group,
        "label": pair.label,
        "text": pair.text,
        "judge": pair.judge,
        "fingerprint": pair.fingerprint,
        "label_mass": pair.label_mass,
        "swapped": pair.swapped or None,
        "gap_fwd": gap_fwd,
        "gap_rev": gap_rev,
        "p_fwd": p_fwd,
        "p_rev": p_rev,
        "score_a": score_a,
        "score_b": score_b,
        "verdict_fwd": verdict_fwd,
        "verdict_rev": verdict_rev,
        "verbalized": None if pair.verbalized is None else pair.verbalized._asdict(),
        "samples": None if samples is None else [sample._asdict() for sample in samples],
        "annotators": pair.annotators,
        "failed": pair.failed,
        "asked": pair.asked,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    # ASCII with escapes: a lone surrogate cannot be encoded in UTF-8.
    return json.dumps(given, allow_nan=False) + "\n"


def _lines(file: Path, shape: ComparisonShape | None) -> Iterator["_Line"]:
    rows = list(read_rows(file))
    columns = result_columns(row.fields for row in rows)
    for row in rows:
        try:
            label = label_in(row.fields, shape)
        except InvalidComparisonError as exc:
            raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
        fields = row.fields
        if columns is not None:
            # A column of the input may be called as a field of the judge.
            own = columns.without(fields)
            own = {name: value for name, value in own.items() if name not in FIELDS}
            fields = {**own, **columns.result(fields)}
        yield _Line(place=row.place, fields=fields, label=label)


def _collected(lines: Iterable["_Line"]) -> Judged:
    """Merges the lines of each pair, and counts the lines that are left out."""
    pairs: dict[tuple[str, ...], JudgedPair] = {}
    last: dict[tuple[str, ...], str] = {}
    skipped: list[Skipped] = []
    ties, kind = 0, None
    for line in lines:
        signal, label = line.signal, line.label
        if signal and kind and signal != kind:
            raise line.error(
                f"{_SIGNALS[signal][0]} after lines with {_SIGNALS[kind][0]}: a file must hold the "
                "answers of one judge"
            )
        kind = kind or signal
        if label == "tie":
            ties += 1
            continue
        pair = line.pair(label, expected=_SIGNALS[kind or "p"])
        if isinstance(pair, Skipped):
            skipped.append(pair)
            continue
        # Ids in files of users may repeat: only lines that `evaluate` wrote are merged.
        key = (pair.dataset, pair.id) if line.is_of_evaluate else (line.place,)
        pairs[key] = pairs[key].updated_by(pair) if key in pairs else pair
        last[key] = line.place
    return Judged(
        pairs=tuple(pairs.values()),
        places=tuple(last.values()),
        ties=ties,
        skipped=tuple(skipped),
        signal=kind,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """One row of a file, with the answers among its fields, and its place for messages."""

    place: str
    fields: Mapping[str, Any]
    label: Label | None

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

    def pair(self, label: Side | None, *, expected: tuple[str, str]) -> JudgedPair | Skipped:
        """The judged pair of the line, or the fields that it lacks.

        Args:
            label: Label of the line.
            expected: Fields to name as missing where the line has no answer at all.

        Raises:
            InvalidRequestError: A field has a wrong type or is out of range.
        """
        signal, missing = self.signal, self._missing()
        # Every answer is read before any line is left out: a bad value is always an error.
        gaps = self._two_numbers("gaps") if signal == "gaps" and not missing else None
        p = self._two_numbers("p") if signal == "p" and not missing else None
        scores = self._two_numbers("scores") if signal == "scores" and not missing else None
        label_mass, verdicts = self._label_mass(), self._verdicts()
        verbalized = self._text_or_none("verbalized")
        annotators, samples = self._numbers("annotators"), self._texts("samples")
        answers = (gaps, p, scores, label_mass, verdicts, verbalized, annotators, samples)
        if self.is_of_evaluate and not (self.fields.get("dataset") and self.fields.get("id")):
            raise self.error("a line with asked needs dataset and id")
        if label is None:
            return Skipped(place=self.place, reason="label")
        if missing:
            return Skipped(place=self.place, reason=" and ".join(missing))
        if not self.is_of_evaluate and all(answer is None for answer in answers):
            return Skipped(place=self.place, reason=" and ".join(expected))
        return JudgedPair(
            dataset=self._string("dataset") or "",
            id=self._string("id") or self.place,
            group=self._string("group"),
            label=label,
            swapped=self.fields.get("swapped") is True,
            text=self._string("text"),
            judge=self._string("judge"),
            fingerprint=self._string("fingerprint"),
            gaps=gaps,
            label_mass=label_mass,
            p=p,
            scores=scores,
            verdicts=verdicts,
            verbalized=verbalized,
            annotators=annotators,
            samples=samples,
            failed=self._strings("failed") or None,
            asked=self._strings("asked") or None,
        )

    def _missing(self) -> list[str]:
        """Fields that the line's signal lacks."""
        names = _SIGNALS[self.signal] if self.signal else ()
        return [name for name in names if self.fields.get(name) is None]

    def _two_numbers(self, signal: str) -> tuple[float, float]:
        first, second = (self._number(name, self.fields[name]) for name in _SIGNALS[signal])
        if signal == "scores" and not math.isfinite(first - second):
            raise self.error("score_a and score_b are too far apart")
        return first, second

    def _number(self, name: str, value: object) -> float:
        number = math.nan
        # A bool is an int in Python; an int of 400 digits has no float. CSV has texts only.
        if isinstance(value, int | float | str) and not isinstance(value, bool):
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

    def _verdicts(self) -> tuple[Label | None, Label | None] | None:
        if not any(name in self.fields for name in _VERDICTS):
            return None
        first, second = (self.fields.get(name) for name in _VERDICTS)
        if not all(verdict in ("A", "B", "tie", None) for verdict in (first, second)):
            raise self.error('verdict_fwd and verdict_rev must be "A", "B", "tie" or null')
        return first, second

    def _numbers(self, name: str) -> tuple[float, ...] | None:
        values = self._list(name)
        return None if values is None else tuple(self._number(name, value) for value in values)

    def _texts(self, name: str) -> tuple[Generated, ...] | None:
        values = self._list(name)
        return None if values is None else tuple(self._text(name, value) for value in values)

    def _list(self, name: str) -> list[object] | None:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(f"{name} is not a list")
        return value

    def _text_or_none(self, name: str) -> Generated | None:
        value = self.fields.get(name)
        return None if value is None else self._text(name, value)

    def _text(self, name: str, value: object) -> Generated:
        match value:
            case {"text": str(text), "complete": bool(complete)}:
                return Generated(text, complete)
        raise self.error(f"{name} needs text and complete")

    def _strings(self, name: str) -> Mapping[Observation, str]:
        """An object from observation names to strings; {} where it is missing."""
        value = self.fields.get(name) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.error(f"{name} is not an object with string values")
        return cast(Mapping[Observation, str], value)

    def _string(self, name: str) -> str | None:
        """A string, a number as a string, or None where the field is missing."""
        value = self.fields.get(name)
        return None if value is None else str(value)
