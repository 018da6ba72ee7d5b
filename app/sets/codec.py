"""Writes a version of a calibration set as the bytes that a store keeps, and reads it.

The bytes are lines of JSON, compressed by zlib, which notices damage. The first line is

    {"format": 1, "write_id": "…", "version": 3, "judge": "…", "fingerprint": "…",
     "release": "…", "changed_at": 1790000000.5, "min_label_mass": 0.0,
     "thresholds": {"marginal:0.10": 0.41, "pac:0.05": null}}

and the others hold the examples, some in each, so that other threads can run in between:

    {"<digest>": [gap_fwd, gap_rev, label_mass, label, question]}

`release` wrote the version, at `changed_at` in seconds since 1970. A threshold is null if it is
infeasible; it is left out if it depends on missing labels. Readers compute thresholds with their
own `min_label_mass`. A cascade's set has its plan as `cascade`.

In an example, `gap_rev` is null for a judge that sees no order, and `label_mass` where the judge
does not say it. All three numbers are null if the judge gave no score (`thought_unfinished`). The
label is null for a pair without one, and "tie" for a pair that people found equal. The digest of
the question is left out if it is unknown.
"""

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from app.core.calibration import Calibration, LabeledExample
from app.core.cascade import CascadePlan
from app.core.errors import StoreCorruptError
from app.core.examples import Examples
from app.core.preference import NoScore, Score, score_of_json

_FORMAT = 1
# Fast: digests make most of the size, and compress to half at any level.
_LEVEL = 1
_IN_LINE = 512
# Parsing raises these for bytes that this version did not write.
_DAMAGE = (
    zlib.error,
    AttributeError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, kw_only=True)
class _Header:
    """The fields of the first line that make a calibration."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    write_id: str
    version: Annotated[int, Field(ge=0)]
    judge: str
    fingerprint: str
    release: str | None
    changed_at: float | None
    cascade: CascadePlan | None = None


_HEADER = TypeAdapter(_Header)


def thresholds_of(calibration: Calibration) -> dict[str, float | None]:
    """Returns the standard thresholds by their stored names, such as "marginal:0.10".

    They are None if infeasible; those that depend on missing labels are left out.
    """
    return {
        f"{row.guarantee}:{row.alpha:.2f}": row.threshold
        for row in calibration.standard_rows
        if not row.labels_missing
    }


def stored_thresholds(thresholds: Mapping[str, float | None]) -> dict[str, str]:
    """Returns thresholds as a store keeps them, for programs that read it."""
    return {
        field: repr(-math.inf if threshold is None else threshold)
        for field, threshold in thresholds.items()
    }


def thresholds_in(blob: bytes) -> dict[str, str]:
    """Returns the stored thresholds of a version; {} if it is damaged."""
    try:
        first, _, _ = zlib.decompress(blob).partition(b"\n")
        return stored_thresholds(json.loads(first)["thresholds"])
    except _DAMAGE:
        return {}


def encode(calibration: Calibration) -> bytes:
    """Writes a version. Floats have all digits, so that `decode` returns the same bits."""
    fields = {
        "format": _FORMAT,
        "write_id": calibration.write_id,
        "version": calibration.version,
        "judge": calibration.judge,
        "fingerprint": calibration.fingerprint,
        "release": calibration.release,
        "changed_at": calibration.changed_at,
        "min_label_mass": calibration.min_label_mass,
        "thresholds": thresholds_of(calibration),
        **({} if calibration.cascade is None else {"cascade": asdict(calibration.cascade)}),
    }
    examples = ((digest, _row(example)) for digest, example in calibration.table.items())
    lines = [fields, *iter(lambda: dict(islice(examples, _IN_LINE)), {})]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    return zlib.compress(text.encode("ascii"), _LEVEL)


def decode(name: str, blob: bytes, *, min_label_mass: float = 0.0) -> Calibration:
    """Reads a version, or raises StoreCorruptError if it is damaged or has another format."""
    try:
        first, *lines = zlib.decompress(blob).split(b"\n")
        if (number := json.loads(first)["format"]) != _FORMAT:
            raise StoreCorruptError(
                f"a version of calibration {name!r} has the format {number!r}, and this "
                f"release of scope-judge reads the format {_FORMAT} only. Run the release that "
                "wrote it, or delete the calibration and calibrate again"
            )
        fields = _HEADER.validate_json(first)
        examples = {
            digest: _example(row) for line in lines for digest, row in json.loads(line).items()
        }
        return Calibration(
            **vars(fields),
            name=name,
            examples=Examples.of(examples),
            min_label_mass=min_label_mass,
        )
    except _DAMAGE as exc:
        raise StoreCorruptError(
            f"calibration {name!r} is stored in a form that this version cannot read. Delete the "
            "calibration and calibrate again, or restore the store from a backup"
        ) from exc


def _row(example: LabeledExample) -> tuple[Any, ...]:
    """An example as a version has it."""
    score, small = example.score, example.score.small
    question = (example.question,) if example.question or small else ()
    last = () if small is None else (tuple(small.fields.values()),)
    return (*score.fields.values(), example.label, *question, *last)


def _example(row: Any) -> LabeledExample:
    """Reads an example; raises an error of `_DAMAGE` for any other value."""
    gap_fwd, gap_rev, label_mass, label, *more = row
    question, small = (*more, None, None)[:2]
    score = _score(gap_fwd, gap_rev, label_mass)
    if small is not None:
        score = replace(score, small=_score(*small))
    return LabeledExample(score=score, label=label, question=question)


def _score(gap_fwd: Any, gap_rev: Any, label_mass: Any) -> Score | NoScore:
    if gap_fwd is gap_rev is label_mass is None:
        return NoScore(reason="thought_unfinished")
    return score_of_json(gap_fwd, gap_rev, label_mass)
