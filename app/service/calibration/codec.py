"""Converts a calibration to the strings that a store keeps, and back.

The meta of a set has these fields besides "write_id" and "version", which the store adds:

    judge, fingerprint    the judge that scored the examples
    n                     number of examples
    digest                64 hexadecimal digits
    changed_at            time of the change, in seconds since 1970
    min_label_mass        for programs that read the thresholds; a reading service uses its setting
    release               release that made the version
    runtimes              runtimes of the scores, as a JSON list of texts; not written if unknown

An example is [gap_fwd, gap_rev, label_mass, label] as JSON. `gap_rev` is null for a judge that
sees no order, and `label_mass` where the judge does not say it. The label is null for a pair
without one, and "tie" for a pair that people found equal. A fifth field, the digest of the
question, is not written if it is unknown, as in an example that a client imported without it.

A threshold has the name "guarantee:alpha".

The digest reveals that another program changed the set, or that a part of the set was lost. It is
not a signature: a program that can write to the store can also write a matching digest. The digest
is the sum modulo 2^256 of `core.examples.Examples.checksum` and the SHA-256, read as a big-endian
number, of

    ["judge","fingerprint",3]

with judge, fingerprint and n of the set as JSON without spaces, in ASCII. So a write updates the
digest from the changed examples alone.
"""

import hashlib
import json
from collections.abc import Mapping

from app.core.calibration import Calibration, LabelledExample
from app.core.errors import StoreCorruptError
from app.core.examples import Draft, Examples
from app.core.threshold_rows import ThresholdRow
from app.ports import StoredCalibration, Version
from app.service.calibration.parsing import (
    PARSE_ERRORS,
    parse_example,
    parse_finite,
    parse_texts,
)

_META_FIELDS = ("judge", "fingerprint")


def threshold_fields(calibration: Calibration) -> dict[str, ThresholdRow]:
    """Returns the standard thresholds by their stored names, such as "marginal:0.10".

    Those that depend on missing labels are left out.
    """
    return {
        f"{row.guarantee}:{row.alpha:.2f}": row
        for row in calibration.standard_rows
        if not row.labels_missing
    }


def encode(
    calibration: Calibration, *, changed: Mapping[str, LabelledExample]
) -> StoredCalibration:
    """Writes a calibration as strings, with only its changed examples.

    Floats are written with all digits, so that decoding returns the same bits.
    """
    return StoredCalibration(
        version=Version(calibration.write_id, calibration.version),
        meta={
            "judge": calibration.judge,
            "fingerprint": calibration.fingerprint,
            "min_label_mass": repr(calibration.min_label_mass),
            "n": str(calibration.n),
            "digest": digest_of(calibration),
            "changed_at": "" if calibration.changed_at is None else repr(calibration.changed_at),
            **written_release(calibration),
            **written_runtimes(calibration),
        },
        examples={
            digest: json.dumps(score.fields) for digest, score in Examples.of(changed).pairs()
        },
        thresholds={
            field: repr(row.threshold) for field, row in threshold_fields(calibration).items()
        },
    )


def written_release(calibration: Calibration) -> dict[str, str]:
    """Returns the field `release`, unless the version is not stored yet."""
    return {} if calibration.release is None else {"release": calibration.release}


def written_runtimes(calibration: Calibration) -> dict[str, str]:
    """Returns the field `runtimes`, unless no runtime is known."""
    runtimes = calibration.runtimes
    return {"runtimes": json.dumps(runtimes, separators=(",", ":"))} if runtimes else {}


def digest_of(calibration: Calibration) -> str:
    """Returns the digest of the content, 64 hexadecimal digits, as the module describes it."""
    described = [
        calibration.judge,
        calibration.fingerprint,
        calibration.n,
    ]
    text = json.dumps(described, separators=(",", ":"))
    header = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return f"{(calibration.table.checksum + header) % 2**256:064x}"


def decode(name: str, stored: StoredCalibration, *, min_label_mass: float = 0.0) -> Calibration:
    """Parses a stored calibration, and checks that its content is complete and unchanged.

    Args:
        name: Name of the calibration set.
        stored: The calibration as the store returned it.
        min_label_mass: Setting of this service, in [0, 1).

    Raises:
        StoreCorruptError: A field is missing or malformed, or examples were changed or lost.
    """
    try:
        judge, fingerprint = (stored.meta[field] for field in _META_FIELDS)
        draft = Draft()
        for digest, score in stored.examples.items():
            draft.set(digest, parse_example(json.loads(score)))
        calibration = Calibration(
            name=name,
            write_id=stored.version.write_id,
            version=stored.version.number,
            judge=judge,
            fingerprint=fingerprint,
            examples=draft.done(),
            min_label_mass=min_label_mass,
            changed_at=_parse_time(stored.meta["changed_at"]),
            release=stored.meta.get("release"),
            runtimes=parse_texts(stored.meta.get("runtimes", "[]")),
        )
        n, digest = stored.meta["n"], stored.meta["digest"]
    except PARSE_ERRORS as exc:
        raise StoreCorruptError(
            f"calibration {name!r} is stored in a form that this version cannot read. Delete the "
            "calibration and calibrate again"
        ) from exc
    if str(calibration.n) != n:
        raise _tampered(name, "the set has more or fewer examples than were written")
    if digest != digest_of(calibration):
        raise _tampered(
            name,
            "its examples or judge differ from those written",
        )
    return calibration


def _tampered(name: str, why: str) -> StoreCorruptError:
    return StoreCorruptError(
        f"calibration {name!r} was changed by another program, or was restored or copied only in "
        f"part: {why}. Restore the whole store from a backup, or delete the calibration and "
        "calibrate again"
    )


def release(fields: Mapping[str, str]) -> None:
    """Empties a dict item by item, so that other threads can run in between.

    Freeing 300,000 strings in one step would stop all threads for longer than a judgment takes.
    """
    if isinstance(fields, dict):
        while fields:
            fields.popitem()


def _parse_time(text: str) -> float | None:
    """Returns seconds since 1970; None for an empty text."""
    return parse_finite(float(text)) if text else None
