"""Writes a version of a calibration set as the bytes that a store keeps, and reads it.

The bytes are lines of JSON, compressed by zlib, which notices damage. The first line is

    {"format": 1, "write_id": "…", "version": 3, "judge": "…", "fingerprint": "…",
     "release": "…", "changed_at": 1790000000.5, "runtimes": ["…"], "min_label_mass": 0.0,
     "thresholds": {"marginal:0.10": 0.41, "pac:0.05": null}}

and the others hold the examples, some in each, so that other threads can run in between:

    {"<digest>": [gap_fwd, gap_rev, label_mass, label, question]}

`release` wrote the version, at `changed_at` in seconds since 1970. `runtimes` computed the scores.
A threshold is null if it is infeasible; it is left out if it depends on missing labels. Readers
compute thresholds with their own `min_label_mass`. A cascade's set has its plan as `cascade`.

Of an example, `gap_rev` is null for a judge that sees no order, and `label_mass` where the judge
does not say it. All three numbers are null if the judge gave no score (`thought_unfinished`). The
label is null for a pair without one, and "tie" for a pair that people found equal. The digest of
the question is left out if it is unknown.
"""

import json
import math
import zlib
from dataclasses import asdict
from itertools import islice
from typing import Any

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError
from app.core.examples import Draft
from app.core.threshold_rows import ThresholdRow
from app.sets.parsing import (
    PARSE_ERRORS,
    parse_count,
    parse_digest,
    parse_example,
    parse_finite,
    parse_plan,
    parse_text,
)

_FORMAT = 1
# Fast: digests make most of the size, and compress to half at any level.
_LEVEL = 1
_IN_LINE = 512


def threshold_fields(calibration: Calibration) -> dict[str, ThresholdRow]:
    """Returns the standard thresholds by their stored names, such as "marginal:0.10".

    Those that depend on missing labels are left out.
    """
    return {
        f"{row.guarantee}:{row.alpha:.2f}": row
        for row in calibration.standard_rows
        if not row.labels_missing
    }


def thresholds_of(calibration: Calibration) -> dict[str, float | None]:
    """Returns the standard thresholds by their stored names; None if infeasible."""
    return {
        field: row.threshold if row.feasible else None
        for field, row in threshold_fields(calibration).items()
    }


def thresholds_in(blob: bytes) -> dict[str, str]:
    """Returns the thresholds of a version for programs that read the store; {} if it is damaged."""
    try:
        first, _, _ = zlib.decompress(blob).partition(b"\n")
        return {
            field: repr(-math.inf if threshold is None else parse_finite(threshold))
            for field, threshold in json.loads(first)["thresholds"].items()
        }
    except (zlib.error, *PARSE_ERRORS):
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
        "runtimes": calibration.runtimes,
        "min_label_mass": calibration.min_label_mass,
        "thresholds": thresholds_of(calibration),
        **({} if calibration.cascade is None else {"cascade": asdict(calibration.cascade)}),
    }
    examples = ((digest, example.fields) for digest, example in calibration.table.pairs())
    lines = [fields, *iter(lambda: dict(islice(examples, _IN_LINE)), {})]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    return zlib.compress(text.encode("ascii"), _LEVEL)


def decode(name: str, blob: bytes, *, min_label_mass: float = 0.0) -> Calibration:
    """Reads a version.

    Args:
        name: Name of the calibration set.
        blob: The version as the store returned it.
        min_label_mass: Setting of this service, in [0, 1).

    Raises:
        StoreCorruptError: The bytes are damaged, or have another format.
    """
    try:
        first, *lines = zlib.decompress(blob).split(b"\n")
        fields: dict[str, Any] = json.loads(first)
        if fields["format"] != _FORMAT:
            raise StoreCorruptError(
                f"a version of calibration {name!r} has the format {fields['format']!r}, and this "
                f"release of scope-judge reads the format {_FORMAT} only. Run the release that "
                "wrote it, or delete the calibration and calibrate again"
            )
        draft = Draft()
        for line in lines:
            for digest, example in json.loads(line).items():
                draft.set(parse_digest(digest), parse_example(example))
        changed_at, release = fields["changed_at"], fields["release"]
        return Calibration(
            name=name,
            write_id=parse_text(fields["write_id"]),
            version=parse_count(fields["version"]),
            judge=parse_text(fields["judge"]),
            fingerprint=parse_text(fields["fingerprint"]),
            examples=draft.done(),
            min_label_mass=min_label_mass,
            changed_at=None if changed_at is None else parse_finite(changed_at),
            release=None if release is None else parse_text(release),
            runtimes=tuple(map(parse_text, fields["runtimes"])),
            cascade=parse_plan(fields["cascade"]) if "cascade" in fields else None,
        )
    except (zlib.error, *PARSE_ERRORS) as exc:
        raise StoreCorruptError(
            f"calibration {name!r} is stored in a form that this version cannot read. Delete the "
            "calibration and calibrate again, or restore the store from a backup"
        ) from exc
