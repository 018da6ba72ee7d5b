"""Entries of the log of audits as JSON: draws of judgments, and labels of draws.

    {"kind": "draw", "id", "calibration", "fingerprint", "digest", "question", "gap_fwd", "gap_rev",
     "label_mass", "write_id", "version", "alpha", "guarantee", "delta", "label_noise", "accepted",
     "rate", "at"}
    {"kind": "label", "id", "label", "by", "at"}

Times are seconds since 1970. Later releases may add fields and kinds, which this one ignores.

The digest of a comparison ignores the order of its two responses, and so must a draw. The id of a
draw is 127 bits for the comparison, and one last bit for the order. So a label is understood in the
order that its sender judged, whichever order was judged first.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, get_args

from app.core.comparison import Guarantee, Label
from app.service.calibration.parsing import (
    PARSE_ERRORS,
    optional,
    parse_count,
    parse_finite,
    parse_label_noise,
    parse_text,
)

T = TypeVar("T")


class CriterionKey(NamedTuple):
    """The part of a criterion that one monitor watches; `delta` is None under "marginal"."""

    alpha: float
    guarantee: Guarantee
    delta: float | None


class DrawEntry(NamedTuple):
    """One judgment that was drawn.

    Args:
        id: Id of the comparison in its set and of its order: 32 hexadecimal digits.
        calibration: Name of the calibration set.
        fingerprint: Fingerprint of the judge.
        digest: Digest of the comparison, from `core.fingerprint.example_digest`.
        question: Digest of the question, from `core.fingerprint.question_digest`.
        gap_fwd: Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Logit of response_a minus that of response_b, response_a shown second.
        label_mass: Probability of the two labels together, in the order where it is smaller.
        write_id: Write id of the set's version that decided.
        version: Number of that version.
        criterion: The criterion that decided.
        label_noise: Label noise of that version, in [0, 0.5).
        accepted: Whether the judgment has a verdict.
        rate: Probability with which the comparison was drawn, in (0, 1].
        at: Time of the judgment, in seconds since 1970.
    """

    id: str
    calibration: str
    fingerprint: str
    digest: str
    question: str
    gap_fwd: float
    gap_rev: float
    label_mass: float
    write_id: str
    version: int
    criterion: CriterionKey
    label_noise: float
    accepted: bool
    rate: float
    at: float

    @property
    def text(self) -> str:
        """The entry as the store keeps it: JSON without spaces."""
        fields = self._asdict()
        fields |= fields.pop("criterion")._asdict()
        return _written({"kind": "draw", **fields})


class LabelEntry(NamedTuple):
    """A label for a draw.

    Args:
        id: Id of the draw, in either order.
        label: The side that a person prefers, in the order of the id.
        by: Name of the key that sent the label, or "service".
        at: Time of the label, in seconds since 1970.
    """

    id: str
    label: Label
    by: str
    at: float

    @property
    def text(self) -> str:
        """The entry as the store keeps it: JSON without spaces."""
        return _written({"kind": "label", **self._asdict()})


Entry = DrawEntry | LabelEntry


def parse_entry(text: str) -> Entry | None:
    """Parses an entry of the log; returns None for a kind that a later release added.

    Raises:
        ValueError: The text is no entry that any release wrote.
    """
    try:
        fields = json.loads(text)
        kind = fields["kind"]
        if kind == "label":
            return LabelEntry(**_parsed(_LABEL_PARSERS, fields))
        if kind == "draw":
            criterion = CriterionKey(**_parsed(_CRITERION_PARSERS, fields))
            return DrawEntry(criterion=criterion, **_parsed(_DRAW_PARSERS, fields))
        parse_text(kind)
    except PARSE_ERRORS as exc:
        raise ValueError("not an entry of the log of audits") from exc
    return None


def _written(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)


def _parsed(parsers: Mapping[str, Callable[[Any], Any]], fields: Mapping[str, Any]) -> Any:
    return {name: parse(fields[name]) for name, parse in parsers.items()}


def _hexadecimal(digits: int) -> Callable[[Any], str]:
    """Returns a parser of so many hexadecimal digits."""

    def parse(value: Any) -> str:
        if len(bytes.fromhex(value)) * 2 != digits or value != value.lower():
            raise ValueError("not so many hexadecimal digits")
        return str(value)

    return parse


def _one_of(values: tuple[T, ...]) -> Callable[[Any], T]:
    """Returns a parser of a closed set."""

    def parse(value: Any) -> T:
        return values[values.index(value)]

    return parse


def _share(value: Any) -> float:
    if not 0.0 < parse_finite(value) <= 1.0:
        raise ValueError("not a share above 0")
    return float(value)


def _probability(value: Any) -> float:
    if not 0.0 < parse_finite(value) < 1.0:
        raise ValueError("not between 0 and 1")
    return float(value)


# The parser of each field.
_LABEL_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "id": _hexadecimal(32),
    "label": _one_of(get_args(Label)),
    "by": parse_text,
    "at": parse_finite,
}
_CRITERION_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "alpha": _probability,
    "guarantee": _one_of(get_args(Guarantee)),
    "delta": optional(_probability),
}
_DRAW_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "id": _hexadecimal(32),
    **dict.fromkeys(("calibration", "write_id"), parse_text),
    **dict.fromkeys(("fingerprint", "digest", "question"), _hexadecimal(64)),
    **dict.fromkeys(("gap_fwd", "gap_rev", "label_mass", "at"), parse_finite),
    "version": parse_count,
    "label_noise": parse_label_noise,
    "accepted": _one_of((False, True)),
    "rate": _share,
}
