"""Stored versions decode bit for bit, and damaged or foreign ones are refused."""

import json
import math
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError
from app.sets.codec import decode, encode, thresholds_in
from tests.labeled_examples import calibration_of, labeled_example

# The mean gap divides the others where a judge sees no order, which must not overflow.
gaps = st.sampled_from([0.0, -0.0]) | st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
labels = st.sampled_from(["A", "B", None, "tie"])
questions = st.none() | digests.filter(lambda digest: set(digest) != {"0"})
scores = st.builds(
    labeled_example, gaps, st.none() | gaps, st.none() | st.floats(0, 1), labels, questions
)
calibrations = st.builds(
    Calibration,
    name=st.just("default"),
    write_id=st.uuids().map(lambda value: value.hex),
    version=st.integers(1, 2**40),
    judge=st.text(max_size=20),
    fingerprint=digests,
    examples=st.dictionaries(digests, scores, max_size=8),
    changed_at=st.none() | st.floats(0, 1e10),
    release=st.sampled_from([None, "0.2.0", "0.2.0 (commit 0123456789ab)"]),
)

DIGEST = "d" * 64
EXAMPLE = labeled_example(1.0, -2.0, 0.9, "A")
FIELDS, EXAMPLES = map(
    json.loads, zlib.decompress(encode(calibration_of({DIGEST: EXAMPLE}))).splitlines()
)
UNREADABLE = "in a form that this version cannot read"


def decoded(*, examples: Any = EXAMPLES, **changed: Any) -> Calibration:
    """Decodes a set of which fields were changed."""
    lines = json.dumps({**FIELDS, **changed}), json.dumps(examples)
    return decode("default", zlib.compress("\n".join(lines).encode()))


@settings(max_examples=60)
@given(calibrations)
def test_a_version_reads_back_bit_for_bit(calibration: Calibration) -> None:
    # repr distinguishes -0.0 from 0.0; == does not.
    assert repr(decode("default", encode(calibration))) == repr(calibration)


def test_a_version_holds_its_thresholds() -> None:
    pairs = {
        f"{number:064x}": labeled_example(number / 20, number / 20, 0.9, "A")
        for number in range(1, 200)
    }
    calibration = calibration_of(pairs, min_label_mass=0.25)
    blob = encode(calibration)
    thresholds = thresholds_in(blob)
    assert set(thresholds) == {
        f"{guarantee}:{alpha}"
        for guarantee in ("marginal", "pac")
        for alpha in ("0.05", "0.10", "0.15", "0.20", "0.25")
    }
    for alpha in (0.05, 0.1, 0.25):
        found = calibration.threshold(alpha, "marginal", None)
        assert float(thresholds[f"marginal:{alpha:.2f}"]) == found
        assert math.isfinite(found)
    assert float(thresholds_in(encode(calibration_of({})))["marginal:0.05"]) == -math.inf
    for damaged in (b"damaged", zlib.compress(b'{"thresholds": [1]}')):
        assert thresholds_in(damaged) == {}
    # Whoever reads the set computes with their own setting.
    assert decode("default", blob).min_label_mass == 0.0


def test_another_format_is_refused_by_its_number() -> None:
    with pytest.raises(StoreCorruptError, match=r"'default' has the format 2, .*format 1 only"):
        decoded(format=2)


@pytest.mark.parametrize("field", sorted(FIELDS.keys() - {"thresholds", "min_label_mass"}))
def test_a_missing_field_is_corrupt(field: str) -> None:
    fields = {name: value for name, value in FIELDS.items() if name != field}
    with pytest.raises(StoreCorruptError, match=r"'default'.*cannot read"):
        decode("default", zlib.compress(json.dumps(fields).encode()))


@pytest.mark.parametrize("at", range(0, len(encode(calibration_of({DIGEST: EXAMPLE}))), 7))
def test_damage_is_noticed(at: int) -> None:
    blob = bytearray(encode(calibration_of({DIGEST: EXAMPLE})))
    blob[at] ^= 0xFF
    for damaged in (bytes(blob), bytes(blob[:at])):
        with pytest.raises(StoreCorruptError, match=UNREADABLE):
            decode("default", damaged)


@pytest.mark.parametrize(
    "changed",
    [
        {"changed_at": "yesterday"},
        {"version": -1},
        {"judge": "\ud800"},
        {"examples": [1, 2]},
    ],
    ids=repr,
)
def test_a_value_that_was_never_written_is_corrupt(changed: dict[str, Any]) -> None:
    with pytest.raises(StoreCorruptError, match=UNREADABLE):
        decoded(**changed)


@pytest.mark.parametrize(
    "example",
    [
        None,
        "text",
        [1.0, 2.0, 0.9],
        [math.nan, 2.0, 0.9, "A"],
        [1.0, math.inf, 0.9, "A"],
        ["1.0", 2.0, 0.9, "A"],
        [10**400, 2.0, 0.9, "A"],
    ],
    ids=lambda example: repr(example)[:30],
)
def test_an_example_that_was_never_written_is_corrupt(example: Any) -> None:
    with pytest.raises(StoreCorruptError, match=UNREADABLE) as raised:
        decoded(examples={DIGEST: example})
    # An error never quotes stored data.
    assert "text" not in raised.value.detail
