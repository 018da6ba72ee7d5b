"""Calibration <-> the strings that a store keeps."""

import json
import math
from collections.abc import Mapping
from typing import Any

from app.core.calibration import Calibration, LabelledScore
from app.core.errors import StoreCorruptError
from app.ports import StoredCalibration, Version

_META_FIELDS = ("judge", "fingerprint", "label_noise")


def threshold_field(guarantee: str, alpha: float) -> str:
    """The name of a stored threshold, e.g. "marginal:0.10"."""
    return f"{guarantee}:{alpha:.2f}"


def encode(calibration: Calibration, *, changed: Mapping[str, LabelledScore]) -> StoredCalibration:
    """Writes a calibration as strings, with only the examples that changed.

    Floats are written so that they read back bit for bit.
    """
    return StoredCalibration(
        version=Version(calibration.write_id, calibration.version),
        meta={
            "judge": calibration.judge,
            "fingerprint": calibration.fingerprint,
            "label_noise": repr(calibration.label_noise),
            # For readers of the thresholds; this service's own setting counts when it is read.
            "min_label_mass": repr(calibration.min_label_mass),
            "n": str(calibration.n),
            "changed_at": "" if calibration.changed_at is None else repr(calibration.changed_at),
        },
        examples={digest: json.dumps(tuple(score)) for digest, score in changed.items()},
        thresholds={
            threshold_field(row.guarantee, row.alpha): repr(row.threshold)
            for row in calibration.standard_rows
        },
    )


def decode(name: str, stored: StoredCalibration) -> Calibration:
    """Reads a calibration.

    Raises:
        StoreCorruptError: A field is missing or is not what this version writes.
    """
    try:
        judge, fingerprint, noise = (stored.meta[field] for field in _META_FIELDS)
        return Calibration(
            name=name,
            write_id=stored.version.write_id,
            version=stored.version.number,
            judge=judge,
            fingerprint=fingerprint,
            label_noise=label_noise(noise),
            examples={
                digest: labelled_score(json.loads(text)) for digest, text in stored.examples.items()
            },
            changed_at=_optional_time(stored.meta.get("changed_at", "")),
        )
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise StoreCorruptError(
            f"calibration {name!r} is stored in a form that this version does not read; delete it "
            "and calibrate again"
        ) from exc


def _optional_time(text: str) -> float | None:
    """Reads a time; sets from before it was noted have none."""
    return finite(float(text)) if text else None


def labelled_score(fields: Any) -> LabelledScore:
    """Reads one example, as JSON gives it; raises ValueError or TypeError if it is none."""
    gap_fwd, gap_rev, label_mass, label = fields
    if label not in ("A", "B") or not all(map(math.isfinite, (gap_fwd, gap_rev, label_mass))):
        raise ValueError("no labelled score")
    return LabelledScore(float(gap_fwd), float(gap_rev), float(label_mass), label)


def label_noise(value: Any) -> float:
    """Reads a label noise; raises ValueError, TypeError or OverflowError if it is none."""
    found = float(value)
    if not 0.0 <= found < 0.5:
        raise ValueError("no label noise")
    return found


def text(value: Any) -> str:
    """Reads a string, as JSON gives it; raises ValueError or TypeError if it is none."""
    if not isinstance(value, str):
        raise TypeError("no text")
    # JSON can hold half a surrogate pair, and no answer and no store can.
    value.encode()
    return value


def count(value: Any) -> int:
    """Reads a number of things, as JSON gives it; raises ValueError if it is none."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError("no count")
    return value


def finite(value: Any) -> float:
    """Reads a number, as JSON gives it; raises ValueError or OverflowError if it is none."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("no finite number")
    return float(value)
