"""Stored calibrations decode bit for bit, and malformed ones are refused."""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import Calibration
from app.core.errors import StoreCorruptError
from app.ports import StoredCalibration, Version
from app.service.calibration.codec import decode, encode
from tests.labelled_examples import calibration_of, labelled_example

gaps = st.floats(-1e300, 1e300, allow_nan=False)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
labels = st.sampled_from(["A", "B", None, "tie"])
questions = st.none() | digests.filter(lambda digest: set(digest) != {"0"})
scores = st.builds(
    labelled_example, gaps, st.none() | gaps, st.none() | st.floats(0, 1), labels, questions
)
sided = st.builds(
    labelled_example, gaps, gaps, st.floats(0, 1), st.sampled_from(["A", "B"]), st.none()
)
calibrations = st.builds(
    Calibration,
    name=st.just("default"),
    write_id=st.uuids().map(lambda value: value.hex),
    version=st.integers(1, 2**40),
    judge=st.text(max_size=20),
    fingerprint=digests,
    examples=st.dictionaries(digests, scores, max_size=8),
    release=st.sampled_from([None, "0.2.0", "0.2.0 (commit 0123456789ab)"]),
)
labelled_sets = st.builds(
    replace, calibrations, examples=st.dictionaries(digests, sided, max_size=8)
)


EXAMPLE = labelled_example(1.0, -2.0, 0.9, "A")
META = encode(calibration_of({"d": EXAMPLE}), changed={}).meta
UNREADABLE = "in a form that this version cannot read"
SCORE = json.dumps([1.0, -2.0, 0.9, "A"])


def decoded(meta: Mapping[str, str] = META, score: str = SCORE) -> Calibration:
    """Decodes a set with one example."""
    stored = StoredCalibration(
        version=Version("x", 3), meta=dict(meta), examples={"d": score}, thresholds={}
    )
    return decode("default", stored)


@settings(max_examples=60)
@given(calibrations)
def test_a_calibration_reads_back_bit_for_bit(calibration: Calibration) -> None:
    stored = encode(calibration, changed=calibration.examples)
    # repr distinguishes -0.0 from 0.0; == does not.
    assert repr(decode("default", stored)) == repr(calibration)


@settings(max_examples=40)
@given(labelled_sets)
def test_only_changed_examples_are_written_with_the_thresholds_of_the_whole_set(
    calibration: Calibration,
) -> None:
    stored = encode(calibration, changed={})
    assert stored.examples == {}
    assert stored.meta["n"] == str(calibration.n)
    assert set(stored.thresholds) == {
        f"{guarantee}:{alpha}"
        for guarantee in ("marginal", "pac")
        for alpha in ("0.05", "0.10", "0.15", "0.20", "0.25")
    }
    for alpha in (0.05, 0.1, 0.25):
        assert float(stored.thresholds[f"marginal:{alpha:.2f}"]) == calibration.threshold(
            alpha, "marginal", None
        )


@settings(max_examples=40)
@given(calibrations)
def test_the_digest_is_the_one_that_is_documented(calibration: Calibration) -> None:
    head = [calibration.judge, calibration.fingerprint, calibration.n]
    texts = [json.dumps(head, separators=(",", ":")).encode()]
    letters = {"A": b"A", "B": b"B", None: b"?", "tie": b"="}
    for digest, example in calibration.examples.items():
        score = example.score
        gap_rev = math.nan if score.gap_rev is None else score.gap_rev
        label_mass = math.nan if score.label_mass is None else score.label_mass
        numbers = struct.pack("<3d", score.gap_fwd + 0.0, gap_rev + 0.0, label_mass + 0.0)
        asked = bytes.fromhex(example.question or "")
        texts.append(digest.encode() + b"\0" + numbers + letters[example.label] + asked)
    total = sum(int(hashlib.sha256(text).hexdigest(), 16) for text in texts)
    assert encode(calibration, changed={}).meta["digest"] == f"{total % 2**256:064x}"


def test_the_minimum_label_mass_is_written_and_not_read() -> None:
    stored = encode(calibration_of({"d": EXAMPLE}, min_label_mass=0.25), changed={"d": EXAMPLE})
    assert stored.meta["min_label_mass"] == "0.25"
    assert decode("default", stored).min_label_mass == 0.0


@pytest.mark.parametrize("time", [1.25e9, None])
def test_the_time_of_a_version_is_stored(time: float | None) -> None:
    stored = encode(calibration_of({}, changed_at=time), changed={})
    assert decode("default", stored).changed_at == time


@pytest.mark.parametrize("field", ["judge", "fingerprint", "n", "digest", "changed_at"])
def test_a_missing_field_is_corrupt(field: str) -> None:
    with pytest.raises(StoreCorruptError, match=r"'default'.*cannot read"):
        decoded({name: value for name, value in META.items() if name != field})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("changed_at", ["yesterday", "nan", "inf"]),
    ],
)
def test_a_value_that_was_never_written_is_corrupt(field: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(StoreCorruptError, match=UNREADABLE):
            decoded({**META, field: value})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "{}",
        "3",
        '"text"',
        "[1.0, 2.0, 0.9]",
        '[1.0, 2.0, 0.9, "A", 1]',
        '[1.0, 2.0, 0.9, "C"]',
        '[1.0, 2.0, 0.9, "A", null]',
        '[1.0, 2.0, 0.9, "A", "short"]',
        f'[1.0, 2.0, 0.9, "A", "{"F" * 64}"]',
        f'[1.0, 2.0, 0.9, "A", "{"f" * 64}", 1]',
        f'[1.0, 2.0, 0.9, "A", "{"f" * 64}", null]',
        '[1.0, 2.0, 0.9, "A", null, "two words"]',
        '[1.0, 2.0, 0.9, "A", null, "math", null]',
        '[1.0, 2.0, 0.9, ["A"]]',
        '[NaN, 2.0, 0.9, "A"]',
        '[1.0, Infinity, 0.9, "A"]',
        '[null, 2.0, 0.9, "A"]',
        '["1.0", 2.0, 0.9, "A"]',
        f'[1{"0" * 400}, 2.0, 0.9, "A"]',
        "[" * 100_000,
    ],
    ids=lambda text: repr(text[:24]),
)
def test_a_score_that_was_never_written_is_corrupt(text: str) -> None:
    with pytest.raises(StoreCorruptError, match=UNREADABLE):
        decoded(score=text)


def test_an_error_of_the_store_never_quotes_stored_data() -> None:
    with pytest.raises(StoreCorruptError) as raised:
        decoded(score="secret")
    assert "secret" not in raised.value.detail


def test_data_that_this_version_wrote_are_read() -> None:
    found = decoded()
    assert found.examples == {"d": EXAMPLE}
    assert (found.write_id, found.version, found.judge) == ("x", 3, "demo")


FOUR = {f"{i}" * 64: labelled_example(float(i), -1.5, 0.9, "A") for i in range(4)}
SET = encode(calibration_of(FOUR), changed=FOUR)
ONE, *_, LAST = SET.examples


@pytest.mark.parametrize(
    ("meta", "examples"),
    [
        ({}, {ONE: None}),
        ({"n": "3"}, {ONE: None}),
        ({}, {"5" * 64: SCORE}),
        ({}, {ONE: None, "5" * 64: SCORE}),
        ({}, {ONE: json.dumps([0.0, -1.5, 0.9, "B"])}),
        ({}, {ONE: json.dumps([0.0, -1.5, 0.8, "A"])}),
        ({}, {ONE: SET.examples[LAST], LAST: SET.examples[ONE]}),
        ({"n": "5"}, {}),
        ({"n": "-4"}, {}),
        ({"n": "4.0"}, {}),
        ({"judge": "other"}, {}),
        ({"fingerprint": "e" * 64}, {}),
        ({"digest": "0" * 64}, {}),
        ({"digest": ""}, {}),
        ({}, {ONE: json.dumps([0.0, -1.5, 0.9, None])}),
        ({}, {ONE: json.dumps([0.0, -1.5, 0.9, "A", "f" * 64])}),
    ],
)
def test_a_set_that_another_program_changed_is_corrupt(
    meta: dict[str, str], examples: dict[str, str | None]
) -> None:
    assert decode("default", SET).n == 4
    changed = {**SET.examples, **examples}
    found = replace(
        SET,
        meta={**SET.meta, **meta},
        examples={digest: score for digest, score in changed.items() if score is not None},
    )
    with pytest.raises(StoreCorruptError, match="delete the calibration and calibrate again"):
        decode("default", found)


def test_the_order_of_examples_and_the_spelling_of_numbers_do_not_matter() -> None:
    found = {digest: score.replace("1.5", "1.50") for digest, score in SET.examples.items()}
    turned = dict(reversed(found.items()))
    assert decode("default", replace(SET, examples=turned)).examples == FOUR
