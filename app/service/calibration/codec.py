"""Calibration <-> the strings that a store keeps.

The meta of a set has these fields beside the store's own:

    judge, fingerprint    whose set it is
    label_noise           as it was posted
    n                     number of examples
    digest                64 hexadecimal digits; sets from before it was written have none
    changed_at            seconds since 1970
    min_label_mass        for readers of the thresholds; this service's setting counts when it reads

The digest tells a set that something else changed, or lost a part of, from one that was written
here. It is no seal: whoever can write to the store can also write a digest. It is the sum modulo
2^256 of `core.examples.Examples.checksum` and the SHA-256, read as a big-endian number, of

    ["judge","fingerprint",0.0,3]

with the set's judge, fingerprint, label noise and n as JSON without spaces and ASCII only. So a
write needs only what it changes to bring it up to date. An older release leaves the field out, and
the next write of this one puts it back.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from app.core.calibration import Calibration, LabelledScore
from app.core.errors import StoreCorruptError
from app.core.examples import Draft, Examples
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
            "min_label_mass": repr(calibration.min_label_mass),
            "n": str(calibration.n),
            "digest": digest_of(calibration),
            "changed_at": "" if calibration.changed_at is None else repr(calibration.changed_at),
        },
        examples={
            digest: json.dumps(tuple(score)) for digest, score in Examples.of(changed).pairs()
        },
        thresholds={
            threshold_field(row.guarantee, row.alpha): repr(row.threshold)
            for row in calibration.standard_rows
        },
    )


def digest_of(calibration: Calibration) -> str:
    """Tells the set's content from any other, as described above."""
    described = [
        calibration.judge,
        calibration.fingerprint,
        calibration.label_noise,
        calibration.n,
    ]
    text = json.dumps(described, separators=(",", ":"))
    header = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return f"{(calibration.table.checksum + header) % 2**256:064x}"


def decode(name: str, stored: StoredCalibration, *, min_label_mass: float = 0.0) -> Calibration:
    """Reads a calibration, and checks that it is the one that was written.

    Args:
        name: Of the set.
        stored: As it is stored.
        min_label_mass: Of the calibration.

    Raises:
        StoreCorruptError: A field is missing or is not what this version writes, or examples were
            changed or lost.
    """
    try:
        judge, fingerprint, noise = (stored.meta[field] for field in _META_FIELDS)
        draft = Draft()
        for digest, score in stored.examples.items():
            draft.set(digest, labelled_score(json.loads(score)))
        calibration = Calibration(
            name=name,
            write_id=stored.version.write_id,
            version=stored.version.number,
            judge=judge,
            fingerprint=fingerprint,
            label_noise=label_noise(noise),
            examples=draft.done(),
            min_label_mass=min_label_mass,
            changed_at=_optional_time(stored.meta.get("changed_at", "")),
        )
        expected = stored.meta["n"]
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise StoreCorruptError(
            f"calibration {name!r} is stored in a form that this version does not read; delete it "
            "and calibrate again"
        ) from exc
    if str(calibration.n) != expected:
        raise _tampered(name, "it has more or fewer examples than were written")
    if stored.meta.get("digest") not in (None, digest_of(calibration)):
        raise _tampered(name, "its examples, judge or label noise are not those that were written")
    return calibration


def _tampered(name: str, why: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"calibration {name!r} was changed by something else than this service, or was restored or "
        f"copied in part: {why}. Restore the whole store from a backup, or delete the calibration "
        "and calibrate again"
    )


def release(fields: Mapping[str, str]) -> None:
    """Empties a dict bit by bit, so that other threads have their turn meanwhile.

    To free 300,000 strings at once would stop them all for longer than a judgment takes.
    """
    if isinstance(fields, dict):
        while fields:
            fields.popitem()


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
