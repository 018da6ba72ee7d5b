"""Judged pairs: every raw answer of one judge, as `evaluate` keeps them in judgments.jsonl."""

import gzip
import json
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO, cast

from app.core.comparison import Label, Side
from app.core.errors import InvalidRequestError
from app.ports import Generated

# What a judge can be asked about a pair: its label logits in both orders, its confidence in words,
# its verdict as each of several personas, its verdict several times over.
Observation = Literal["orders", "verbalized", "annotators", "samples"]

# Of every line that `judgment_line` writes.
LINE_BEGINS = b'{"dataset": "'

_GZIP_MAGIC = b"\x1f\x8b"
# What an observation answers, by the names of `JudgedPair`.
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "orders": ("gaps", "p", "scores", "label_mass", "verdicts"),
    "verbalized": ("verbalized",),
    "annotators": ("annotators",),
    "samples": ("samples",),
}
_SIGNALS = {
    "gaps": ("gap_fwd", "gap_rev"),
    "p": ("p_fwd", "p_rev"),
    "scores": ("score_a", "score_b"),
}
_VERDICTS = ("verdict_fwd", "verdict_rev")


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """One labelled pair with what the judge said of it; None is what nobody asked.

    At most one of `gaps`, `p` and `scores` is there, and the same one for all pairs of a judge.

    Args:
        dataset: Name of the data set; "" in files of others.
        id: Unique within the data set.
        group: Of the question: pairs of one group are not independent.
        label: The response that people prefer.
        swapped: Whether response_a here is response_b in the data.
        text: Digest of question and responses; answers to another text are not to this one.
        judge: The judge's name; None in files that do not say.
        fingerprint: The judge's; None in files of others.
        gaps: Label logit of response_a less that of response_b, response_a shown first and second.
        label_mass: Smaller of the two orders' probability on the two labels.
        p: Probability or vote share of response_a, shown first and second.
        scores: A reward model's, of response_a and response_b.
        verdicts: The judge's, response_a shown first and second, in files that have them.
        verbalized: The answer to the question for a confidence.
        annotators: As `gaps`, shown first, one for each persona.
        samples: Answers drawn at a temperature, response_a shown first.
        failed: Error code of each observation that gave none.
        asked: Digest of what was asked for each observation; the same question need not be asked
            again.
    """

    dataset: str
    id: str
    group: str | None
    label: Side
    swapped: bool = False
    text: str | None = None
    judge: str | None = None
    fingerprint: str | None = None
    gaps: tuple[float, float] | None = None
    label_mass: float | None = None
    p: tuple[float, float] | None = None
    scores: tuple[float, float] | None = None
    verdicts: tuple[Label | None, Label | None] | None = None
    verbalized: Generated | None = None
    annotators: tuple[float, ...] | None = None
    samples: tuple[Generated, ...] | None = None
    failed: Mapping[Observation, str] | None = None
    asked: Mapping[Observation, str] | None = None

    def only(self, observations: Collection[Observation]) -> "JudgedPair":
        """The same pair with what it was asked for these observations, and nothing else."""
        dropped = [name for kind in _ANSWERS if kind not in observations for name in _ANSWERS[kind]]
        kept = {
            name: {k: v for k, v in (getattr(self, name) or {}).items() if k in observations}
            for name in ("failed", "asked")
        }
        changed: dict[str, Any] = dict.fromkeys(dropped)
        changed |= {name: values or None for name, values in kept.items()}
        return replace(self, **changed)


class Skipped(NamedTuple):
    """A line that was left out, and what it lacks."""

    line: int
    reason: str


class Judged(NamedTuple):
    """What a file holds.

    Args:
        pairs: In the order of the file; one that stands in several lines has what all of them say.
        lines: The last line of each pair.
        ties: Lines with label "tie", left out.
        skipped: Lines without a label or any answer, left out: what is missing is never 0.5.
    """

    pairs: tuple[JudgedPair, ...]
    lines: tuple[int, ...]
    ties: int
    skipped: tuple[Skipped, ...]


def read_judgments(file: Path) -> Judged:
    """Reads JSONL, gzipped or not, of pairs that a judge has judged and people have labelled.

    Each line has `label` ("A", "B" or "tie") and what the judge said: `gap_fwd` and `gap_rev`, the
    label logit of response_a less that of response_b when response_a is shown first and second;
    or `p_fwd` and `p_rev`, the probabilities or vote shares of response_a; or the `score_a` and
    `score_b` of a reward model; `verdict_fwd` and `verdict_rev`; and whatever else
    `judgment_line` writes. Further fields are ignored.

    Raises:
        InvalidRequestError: The file cannot be read, or a line is not as above.
    """
    try:
        with _open(file) as lines:
            return _collect(_numbered(lines, file))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as exc:
        raise InvalidRequestError(f"{file} cannot be read: {exc}") from None


def judgment_line(pair: JudgedPair) -> str:
    """One line of judgments.jsonl, as `read_judgments` reads it."""
    fields: dict[str, Any] = {
        name: getattr(pair, name)
        for name in (
            *("dataset", "id", "group", "label", "text"),
            *("judge", "fingerprint", "label_mass"),
        )
    }
    fields["swapped"] = pair.swapped or None
    for attribute, names in _SIGNALS.items():
        fields |= zip(names, getattr(pair, attribute) or (None, None), strict=True)
    fields |= zip(_VERDICTS, pair.verdicts or (None, None), strict=True)
    if pair.verbalized is not None:
        fields["verbalized"] = pair.verbalized._asdict()
    if pair.samples is not None:
        fields["samples"] = [sample._asdict() for sample in pair.samples]
    fields |= {name: getattr(pair, name) for name in ("annotators", "failed", "asked")}
    # Half of a surrogate pair has no UTF-8: everything beyond ASCII is written as an escape.
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(given, allow_nan=False) + "\n"


def _open(file: Path) -> TextIO:
    with file.open("rb") as opened:
        zipped = opened.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    if zipped:
        return gzip.open(file, "rt", encoding="utf-8-sig")
    return file.open(encoding="utf-8-sig")


class _Line(NamedTuple):
    """One JSON object of a file, with its place for error messages."""

    number: int
    fields: dict[str, Any]
    place: str

    def refused(self, why: str) -> InvalidRequestError:
        """The error to raise: it names file and line."""
        return InvalidRequestError(f"{self.place}: {why}")

    @property
    def label(self) -> Label | None:
        """What people say; None where that is missing."""
        label: Label | None = self.fields.get("label")
        if label is not None and label not in ("A", "B", "tie"):
            raise self.refused('label must be "A", "B" or "tie"')
        return label

    @property
    def signal(self) -> str | None:
        """Which of the judge's pairs of numbers is here, whole or in part."""
        for attribute, names in _SIGNALS.items():
            if any(self.fields.get(name) is not None for name in names):
                return attribute
        return None

    def missing(self, signal: str) -> list[str]:
        """What a signal lacks."""
        return [name for name in _SIGNALS[signal] if self.fields.get(name) is None]

    def numbers(self, signal: str) -> tuple[float, float]:
        """Both numbers of a signal, within their range."""
        names = _SIGNALS[signal]
        first, second = (self._number(name, self.fields[name]) for name in names)
        if signal == "scores" and not math.isfinite(first - second):
            raise self.refused("score_a and score_b are too far apart")
        return first, second

    def _number(self, name: str, value: object) -> float:
        number = math.nan
        # A bool is an int to Python; an int of 400 digits has no float.
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = float(value)
        if not math.isfinite(number):
            raise self.refused(f"{name} is no finite number")
        if name in (*_SIGNALS["p"], "label_mass") and not 0.0 <= number <= 1.0:
            raise self.refused(f"{name} must be in [0, 1], got {number:g}")
        return number

    def answers(self) -> dict[str, Any]:
        """Whatever the judge said beside the signal, by the names of `JudgedPair`."""
        found: dict[str, Any] = {}
        if self.fields.get("label_mass") is not None:
            found["label_mass"] = self._number("label_mass", self.fields["label_mass"])
        if any(name in self.fields for name in _VERDICTS):
            verdicts = tuple(self.fields.get(name) for name in _VERDICTS)
            if not all(verdict in ("A", "B", "tie", None) for verdict in verdicts):
                raise self.refused('verdict_fwd and verdict_rev must be "A", "B", "tie" or null')
            found["verdicts"] = verdicts
        if self.fields.get("verbalized") is not None:
            found["verbalized"] = self._text("verbalized", self.fields["verbalized"])
        for name, reader in (("annotators", self._number), ("samples", self._text)):
            values = self.fields.get(name)
            if values is not None:
                if not isinstance(values, list):
                    raise self.refused(f"{name} is no list")
                found[name] = tuple(reader(name, value) for value in values)
        return found

    def _text(self, name: str, value: object) -> Generated:
        match value:
            case {"text": str(text), "complete": bool(complete)}:
                return Generated(text, complete)
        raise self.refused(f"{name} needs text and complete")

    def strings(self, name: str) -> dict[str, str]:
        """A field that holds names and strings."""
        value = self.fields.get(name) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.refused(f"{name} is no object of strings")
        return value

    def string(self, name: str) -> str | None:
        """A field that holds a string, a number made into one, or nothing."""
        value = self.fields.get(name)
        return None if value is None else str(value)


def _numbered(lines: Iterable[str], file: Path) -> Iterator[_Line]:
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        place = f"{file}, line {number}"
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise InvalidRequestError(f"{place}: this is no JSON object")
        yield _Line(number, fields, place)


def _collect(lines: Iterable[_Line]) -> Judged:
    """Only lines that `evaluate` wrote complete each other: ids of others may come twice."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    last: dict[tuple[str, ...], int] = {}
    skipped: list[Skipped] = []
    ties, kind = 0, None
    for line in lines:
        signal, label = line.signal, line.label
        if signal and kind and signal != kind:
            names, before = _SIGNALS[signal], _SIGNALS[kind]
            raise line.refused(f"{names[0]} after lines with {before[0]}: one file is of one judge")
        kind = kind or signal
        if label == "tie":
            ties += 1
            continue
        values = line.answers()
        missing = line.missing(signal) if signal else []
        if signal and not missing:
            values[signal] = line.numbers(signal)
        own = "asked" in line.fields
        if own and not (line.fields.get("dataset") and line.fields.get("id")):
            raise line.refused("a line with asked needs dataset and id")
        if label is None or missing or not (own or values):
            lacking = missing or list(_SIGNALS[kind or "p"])
            skipped.append(Skipped(line.number, " and ".join(lacking) if label else "label"))
            continue
        key = (
            (line.string("dataset") or "", line.string("id") or "") if own else (str(line.number),)
        )
        found[key] = _merged(found.get(key, {}), line, values)
        last[key] = line.number
    pairs = tuple(JudgedPair(**fields) for fields in found.values())
    return Judged(pairs, tuple(last.values()), ties, tuple(skipped))


def _merged(before: dict[str, Any], line: _Line, values: dict[str, Any]) -> dict[str, Any]:
    """The later line goes before the earlier, a failure before an answer and the reverse."""
    if before.get("text") != line.string("text"):
        before = {}
    asked, failures = line.strings("asked"), line.strings("failed")
    replaced = {answer for name in asked for answer in _ANSWERS.get(name, ())}
    failed = {k: v for k, v in (before.get("failed") or {}).items() if k not in asked} | failures
    return {
        **{name: value for name, value in before.items() if name not in replaced},
        **values,
        "dataset": line.string("dataset") or "",
        "id": line.string("id") or f"line-{line.number}",
        "group": line.string("group"),
        "label": cast(Side, line.label),
        "swapped": line.fields.get("swapped") is True,
        "text": line.string("text"),
        "judge": line.string("judge"),
        "fingerprint": line.string("fingerprint"),
        "failed": failed or None,
        "asked": {**(before.get("asked") or {}), **asked} or None,
    }
