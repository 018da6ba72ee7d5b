"""Entries of the log of audits: draws of judgments, their labels, and alarms.

The store keeps each entry as one flat JSON object:

    {"kind": "draw", "id", "fingerprint", "digest", "question", "gap_fwd", "gap_rev", "label_mass",
     "calibration", "alpha", "guarantee", "delta", "write_id", "version", "accepted",
     "rate", "at", "by", "wait_s"}
    {"kind": "label", "id", "label", "by", "at", "reason", "yields"}
    {"kind": "alarm", "calibration", "alpha", "guarantee", "delta", "write_id", "version",
     "errors", "audited", "needed", "suspends", "after", "by", "at",
     "first_judged_at", "last_judged_at"}
    {"kind": "alarm_end", "calibration", "alpha", "guarantee", "delta", "alarm", "because",
     "version", "reason", "by", "at"}

Times are seconds since 1970. Only a label "none", which closes a draw without a label, has a
reason, and only a label that replaces none of another key has `yields`. Only a draw whose texts are
too long to be kept has `wait_s`. Later releases may add fields and kinds, which this one ignores.

The digest of a comparison ignores the order of its two responses, and so must a draw. The id of a
draw is 127 bits for the comparison, and one last bit for the order. So a label is understood in the
order that its sender judged, whichever order was judged first.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter

from app.core.comparison import AuditLabel as AuditLabel
from app.core.comparison import Criterion
from app.core.monitoring import JudgedSpan, Ringing
from app.core.score import Score

DrawId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# No number is read from a text, or a truth value from a number.
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


def _with_alpha(criterion: Criterion) -> Criterion:
    for share in (criterion.alpha, 0.5 if criterion.delta is None else criterion.delta):
        if share is None or not 0.0 < share < 1.0:
            raise ValueError("alpha and delta must be in (0, 1)")
    return criterion


@dataclass(frozen=True, kw_only=True, slots=True)
class Decider:
    """The criterion and the version of its set that decided a judgment.

    Args:
        criterion: The criterion, which has an alpha.
        write_id: Write id of the version.
        version: Number of the version.
    """

    __pydantic_config__ = _STRICT

    criterion: Annotated[Criterion, AfterValidator(_with_alpha)]
    write_id: str
    version: Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """One judgment that was drawn.

    Args:
        id: Id of the comparison in its set and of its order.
        fingerprint: Fingerprint of the judge.
        digest: Digest of the comparison, from `core.fingerprint.example_digest`.
        question: Digest of the question, from `core.fingerprint.question_digest`.
        score: Score of the comparison.
        decider: Criterion and version that decided.
        accepted: Whether the judgment has a verdict.
        rate: Probability with which the comparison was drawn, in (0, 1].
        at: Time of the judgment, in seconds since 1970.
        by: Name of the key that asked for the judgment, or "service".
        wait_s: Seconds until which it waits for its label, if that is not the service's time.
    """

    __pydantic_config__ = _STRICT

    id: DrawId
    fingerprint: _Digest
    digest: _Digest
    question: _Digest
    score: Score
    decider: Decider
    accepted: bool
    rate: Annotated[float, Field(gt=0.0, le=1.0)]
    at: float
    by: str
    wait_s: Annotated[float, Field(gt=0.0)] | None = None

    @property
    def calibration(self) -> str:
        """Name of the calibration set."""
        return self.decider.criterion.calibration

    @property
    def text(self) -> str:
        """The entry as the store keeps it."""
        fields = _DRAW.dump_python(self)
        score, decider = fields.pop("score"), fields.pop("decider")
        del score["cached"]
        if self.wait_s is None:
            del fields["wait_s"]
        criterion = decider.pop("criterion")
        return _json({"kind": "draw", **fields, **score, **criterion, **decider})


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelEntry:
    """A label for a draw.

    Args:
        id: Id of the draw, in either order.
        label: The side that a person prefers, in the order of the id; "none" closes the draw.
        by: Name of the key that sent the label, or "service".
        at: Time of the label, in seconds since 1970.
        reason: Why the draw is closed; None with any other label.
        yields: True if a label that another key has sent before stays in force; earlier releases
            replace it.
    """

    __pydantic_config__ = _STRICT

    id: DrawId
    label: AuditLabel
    by: str
    at: float
    reason: str | None = None
    yields: Literal[True] | None = None

    @property
    def text(self) -> str:
        """The entry as the store keeps it."""
        return _json({"kind": "label", **_LABEL.dump_python(self, exclude_none=True)})


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmEntry:
    """The labels of a version have proved more errors than alpha.

    Args:
        decider: The criterion, and the version that rang.
        errors: Number of errors that the labels showed.
        audited: Number of labels.
        needed: Number of draws from now on that replace all examples of the set; None if it would
            be above 100,000. It follows from the criterion alone, so no label has a part in it.
        suspends: Whether judgments under the criterion abstain from now on.
        after: Position of the end of the alarm before; 0 if there was none.
        by: Name of the key that sent the last label, or "service" if a draw has expired.
        at: Time of the alarm, in seconds since 1970.
        first_judged_at: Time of the first judgment whose label led to it.
        last_judged_at: Time of the last one, likewise.
    """

    __pydantic_config__ = _STRICT

    decider: Decider
    errors: Annotated[int, Field(ge=0)]
    audited: Annotated[int, Field(ge=0)]
    needed: Annotated[int, Field(gt=0)] | None
    suspends: bool
    after: Annotated[int, Field(ge=0, lt=2**63)]
    by: str
    at: float
    first_judged_at: float
    last_judged_at: float

    @property
    def ringing(self) -> Ringing:
        """When it rang."""
        span = JudgedSpan(first_judged_at=self.first_judged_at, last_judged_at=self.last_judged_at)
        return Ringing(at=self.at, version=self.decider.version, span=span)

    @property
    def criterion(self) -> Criterion:
        """The criterion."""
        return self.decider.criterion

    @property
    def calibration(self) -> str:
        """Name of the set."""
        return self.criterion.calibration

    @property
    def text(self) -> str:
        """The entry as the store keeps it."""
        fields = _ALARM.dump_python(self)
        decider = fields.pop("decider")
        return _json({"kind": "alarm", **decider.pop("criterion"), **decider, **fields})


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmEnd:
    """The end of an alarm.

    Args:
        criterion: The criterion of the alarm.
        alarm: Position of the alarm.
        because: "version" if enough examples of a new version are newer, "resumed" if somebody has
            ended it.
        version: Number of the current version.
        reason: Why somebody has ended it; None for a version.
        by: Name of the key that made the version or ended the alarm, or "service".
        at: Time of the end, in seconds since 1970.
    """

    __pydantic_config__ = _STRICT

    criterion: Annotated[Criterion, AfterValidator(_with_alpha)]
    alarm: Annotated[int, Field(gt=0, lt=2**63)]
    because: Literal["version", "resumed"]
    version: Annotated[int, Field(ge=0, lt=2**63)]
    reason: str | None
    by: str
    at: float

    @property
    def calibration(self) -> str:
        """Name of the set."""
        return self.criterion.calibration

    @property
    def text(self) -> str:
        """The entry as the store keeps it."""
        fields = _ALARM_END.dump_python(self)
        return _json({"kind": "alarm_end", **fields.pop("criterion"), **fields})


# Entries about the alarms of a set.
AboutAlarm = AlarmEntry | AlarmEnd
Entry = Draw | LabelEntry | AboutAlarm


def parse_entry(text: str) -> Entry | None:
    """Parses an entry of the log; returns None for a kind that a later release added.

    Raises:
        ValueError: The text is not an entry that any release wrote.
    """
    match _KIND.validate_json(text).kind:
        case "draw":
            return _DRAW.validate_json(text)
        case "label":
            return _LABEL.validate_json(text)
        case "alarm":
            return _ALARM.validate_json(text)
        case "alarm_end":
            return _ALARM_END.validate_json(text)
    return None


def readable_entry(text: str) -> Entry | None:
    """Parses an entry of the log; returns None for any text that this release cannot parse.

    One such text must not hide the other entries.
    """
    try:
        return parse_entry(text)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    __pydantic_config__ = _STRICT

    kind: str


def written(at: float) -> str:
    """Writes the time of an entry in ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def written_span(span: JudgedSpan) -> dict[str, str]:
    """Writes the times of the judgments that led to an alarm."""
    return {name: written(at) for name, at in asdict(span).items()}


def between(span: JudgedSpan | None) -> str:
    """Writes the same as part of a sentence; "" without a span."""
    if span is None:
        return ""
    return f" from {written(span.first_judged_at)} to {written(span.last_judged_at)}"


def _nested(fields: Any) -> Any:
    """Gives each record of an entry all fields of the flat object; it takes its own."""
    decider = {**fields, "criterion": fields}
    return {**fields, "score": fields, "criterion": fields, "decider": decider}


_KIND = TypeAdapter(_Kind)
_DRAW: TypeAdapter[Draw] = TypeAdapter(Annotated[Draw, BeforeValidator(_nested)])
_LABEL = TypeAdapter(LabelEntry)
_ALARM: TypeAdapter[AlarmEntry] = TypeAdapter(Annotated[AlarmEntry, BeforeValidator(_nested)])
_ALARM_END: TypeAdapter[AlarmEnd] = TypeAdapter(Annotated[AlarmEnd, BeforeValidator(_nested)])
_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
