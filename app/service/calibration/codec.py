"""Converts a calibration to the strings that a store keeps, and back.

The meta of a set has these fields besides "write_id" and "version", which the store adds:

    judge, fingerprint    the judge that scored the examples
    label_noise           label noise of the set, as the client posted it
    n                     number of examples
    digest                64 hexadecimal digits
    changed_at            time of the change, in seconds since 1970
    min_label_mass        for programs that read the thresholds; a reading service uses its setting
    clusters              how "pac" counts pairs of one question; not written if it is "one"
    release               release that made the version; 0.1.0 did not write this field
    runtimes              runtimes of the scores, as a JSON list of texts; not written if unknown
    groups                groups that the set declares, as a JSON list; not written without any
    by_group              "yes" if groups have separate thresholds; otherwise not written
    looks                 planned looks, as a JSON object; not written without any

An example is [gap_fwd, gap_rev, label_mass, label] as JSON. `gap_rev` is null for a judge that
sees no order, and `label_mass` where the judge does not say it. The label is null for a pair
without one, and "tie" for a pair that people found equal; releases up to 0.3.0 keep ties of pools
only. A fifth field, the digest of the question, is not written if it is unknown, as in an example
that a client imported without it. A sixth field, the group, is only written if there is one; the
fifth is null then if it is unknown.

A threshold has the name "guarantee:alpha". That of a group with separate thresholds has the name
"guarantee:alpha:group".

The digest reveals that another program changed the set, or that a part of the set was lost. It is
not a signature: a program that can write to the store can also write a matching digest. The digest
is the sum modulo 2^256 of `core.examples.Examples.checksum` and the SHA-256, read as a big-endian
number, of

    ["judge","fingerprint",0.0,3]

with judge, fingerprint, label noise and n of the set as JSON without spaces, in ASCII, and further
elements with `clusters`, `groups`, `by_group` and `looks`, as far as these fields are written. So a
write updates the digest from the changed examples alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

from app.core.calibration import Calibration, LabelledExample
from app.core.errors import StoreCorruptError
from app.core.examples import Draft, Examples
from app.core.groups import ALL
from app.core.threshold_rows import ThresholdRow
from app.ports import StoredCalibration, Version
from app.service.calibration.parsing import (
    PARSE_ERRORS,
    parse_clusters,
    parse_example,
    parse_finite,
    parse_groups,
    parse_label_noise,
    parse_looks,
    parse_texts,
)

_META_FIELDS = ("judge", "fingerprint", "label_noise")


def threshold_fields(calibration: Calibration) -> dict[str, ThresholdRow]:
    """Returns the standard thresholds by their stored names, such as "marginal:0.10".

    Those that depend on missing labels are left out.
    """
    named = {ALL: calibration, **calibration.own_calibrations}
    return {
        f"{row.guarantee}:{row.alpha:.2f}" + ("" if group == ALL else f":{group}"): row
        for group, each in named.items()
        for row in each.standard_rows
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
            "label_noise": repr(calibration.label_noise),
            "min_label_mass": repr(calibration.min_label_mass),
            "n": str(calibration.n),
            "digest": digest_of(calibration),
            "changed_at": "" if calibration.changed_at is None else repr(calibration.changed_at),
            **written_clusters(calibration),
            **written_release(calibration),
            **written_runtimes(calibration),
            **written_groups(calibration),
            **written_looks(calibration),
        },
        examples={
            digest: json.dumps(score.fields) for digest, score in Examples.of(changed).pairs()
        },
        thresholds={
            field: repr(row.threshold) for field, row in threshold_fields(calibration).items()
        },
    )


def written_clusters(calibration: Calibration) -> dict[str, str]:
    """Returns the field `clusters`, unless it has the usual value."""
    return {} if calibration.clusters == "one" else {"clusters": calibration.clusters}


def written_release(calibration: Calibration) -> dict[str, str]:
    """Returns the field `release`, unless the version is one of release 0.1.0."""
    return {} if calibration.release is None else {"release": calibration.release}


def written_runtimes(calibration: Calibration) -> dict[str, str]:
    """Returns the field `runtimes`, unless no runtime is known."""
    runtimes = calibration.runtimes
    return {"runtimes": json.dumps(runtimes, separators=(",", ":"))} if runtimes else {}


def written_groups(calibration: Calibration) -> dict[str, str]:
    """Returns the fields `groups` and `by_group`, as far as they do not have the usual values."""
    groups = json.dumps(calibration.groups, separators=(",", ":"))
    return {
        **({"groups": groups} if calibration.groups else {}),
        **({"by_group": "yes"} if calibration.by_group else {}),
    }


def written_looks(calibration: Calibration) -> dict[str, str]:
    """Returns the field `looks`, unless no looks are planned."""
    looks = calibration.looks
    return {} if looks is None else {"looks": json.dumps(asdict(looks), separators=(",", ":"))}


def digest_of(calibration: Calibration) -> str:
    """Returns the digest of the content, 64 hexadecimal digits, as the module describes it."""
    described = [
        calibration.judge,
        calibration.fingerprint,
        calibration.label_noise,
        calibration.n,
        *written_clusters(calibration).values(),
        *written_groups(calibration).values(),
        *written_looks(calibration).values(),
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
        judge, fingerprint, noise = (stored.meta[field] for field in _META_FIELDS)
        draft = Draft()
        for digest, score in stored.examples.items():
            draft.set(digest, parse_example(json.loads(score)))
        calibration = Calibration(
            name=name,
            write_id=stored.version.write_id,
            version=stored.version.number,
            judge=judge,
            fingerprint=fingerprint,
            label_noise=parse_label_noise(noise),
            examples=draft.done(),
            min_label_mass=min_label_mass,
            changed_at=_parse_time(stored.meta["changed_at"]),
            clusters=parse_clusters(stored.meta.get("clusters", "one")),
            release=stored.meta.get("release"),
            runtimes=parse_texts(stored.meta.get("runtimes", "[]")),
            groups=parse_groups(stored.meta.get("groups", "[]")),
            by_group="by_group" in stored.meta,
            looks=parse_looks(stored.meta.get("looks")),
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
            "its examples, judge, label noise, clusters, groups or looks differ from those written",
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
