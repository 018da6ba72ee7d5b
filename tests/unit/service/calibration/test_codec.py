"""Stored calibrations decode bit for bit, and malformed ones are refused."""

import hashlib
import json
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import Calibration, LabelledScore
from app.core.errors import StoreCorruptError
from app.ports import StoredCalibration, Version
from app.service.calibration.codec import decode, encode

gaps = st.floats(-1e300, 1e300, allow_nan=False)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
labels = st.sampled_from(["A", "B", None, "tie"])
questions = st.none() | digests.filter(lambda digest: set(digest) != {"0"})
scores = st.builds(LabelledScore, gaps, gaps, st.floats(0, 1), labels, questions)
sided = st.builds(
    LabelledScore, gaps, gaps, st.floats(0, 1), st.sampled_from(["A", "B"]), st.none()
)
calibrations = st.builds(
    Calibration,
    name=st.just("default"),
    write_id=st.uuids().map(lambda value: value.hex),
    version=st.integers(1, 2**40),
    judge=st.text(max_size=20),
    fingerprint=digests,
    label_noise=st.integers(0, 499_999).map(lambda millionths: millionths / 10**6),
    examples=st.dictionaries(digests, scores, max_size=8),
    clusters=st.sampled_from(["one", "adjusted", "ignore"]),
)
labelled_sets = st.builds(
    replace, calibrations, examples=st.dictionaries(digests, sided, max_size=8)
)

META = {"judge": "demo", "fingerprint": "f" * 64, "label_noise": "0.0", "n": "1"}
SCORE = json.dumps([1.0, -2.0, 0.9, "A"])


@settings(deadline=None, max_examples=60)
@given(calibrations)
def test_a_calibration_reads_back_bit_for_bit(calibration: Calibration) -> None:
    stored = encode(calibration, changed=calibration.examples)
    # repr distinguishes -0.0 from 0.0; == does not.
    assert repr(decode("default", stored)) == repr(calibration)


@settings(deadline=None, max_examples=40)
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


@settings(deadline=None, max_examples=40)
@given(calibrations)
def test_the_digest_is_the_one_that_is_documented(calibration: Calibration) -> None:
    head = [calibration.judge, calibration.fingerprint, calibration.label_noise, calibration.n]
    if calibration.clusters != "one":
        head.append(calibration.clusters)
    texts = [json.dumps(head, separators=(",", ":")).encode()]
    letters = {"A": b"A", "B": b"B", None: b"?", "tie": b"="}
    for digest, (gap_fwd, gap_rev, label_mass, label, question) in calibration.examples.items():
        numbers = struct.pack("<3d", gap_fwd + 0.0, gap_rev + 0.0, label_mass + 0.0)
        asked = bytes.fromhex(question or "")
        texts.append(digest.encode() + b"\0" + numbers + letters[label] + asked)
    total = sum(int(hashlib.sha256(text).hexdigest(), 16) for text in texts)
    assert encode(calibration, changed={}).meta["digest"] == f"{total % 2**256:064x}"


def test_the_minimum_label_mass_is_written_and_not_read() -> None:
    scores = {"d": LabelledScore(1.0, -2.0, 0.9, "A")}
    calibration = Calibration("default", "x", 1, "demo", "f" * 64, 0.0, scores, 0.25)
    stored = encode(calibration, changed=scores)
    assert stored.meta["min_label_mass"] == "0.25"
    assert decode("default", stored).min_label_mass == 0.0


def test_the_time_of_a_version_is_stored_and_older_sets_have_none() -> None:
    calibration = Calibration("default", "x", 1, "demo", "f" * 64, 0.0, {}, changed_at=1.25e9)
    assert decode("default", encode(calibration, changed={})).changed_at == 1.25e9
    meta = {**META, "n": "0"}
    assert decode("default", StoredCalibration(Version("x", 1), meta, {}, {})).changed_at is None


@pytest.mark.parametrize("time", ["yesterday", "nan", "inf"])
def test_a_time_that_was_never_written_is_corrupt(time: str) -> None:
    meta = {**META, "n": "0", "changed_at": time}
    with pytest.raises(StoreCorruptError):
        decode("default", StoredCalibration(Version("x", 1), meta, {}, {}))


@pytest.mark.parametrize("field", ["judge", "fingerprint", "label_noise", "n"])
def test_a_missing_field_is_corrupt(field: str) -> None:
    meta = {name: value for name, value in META.items() if name != field}
    with pytest.raises(StoreCorruptError, match="'default'"):
        decode("default", StoredCalibration(Version("x", 1), meta, {"d": SCORE}, {}))


@pytest.mark.parametrize("noise", ["", "none", "nan", "inf", "0.5", "-0.1"])
def test_a_label_noise_that_was_never_written_is_corrupt(noise: str) -> None:
    meta = {**META, "label_noise": noise}
    with pytest.raises(StoreCorruptError):
        decode("default", StoredCalibration(Version("x", 1), meta, {"d": SCORE}, {}))


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
        '[1.0, 2.0, 0.9, ["A"]]',
        '[NaN, 2.0, 0.9, "A"]',
        '[1.0, Infinity, 0.9, "A"]',
        '[1.0, 2.0, null, "A"]',
        '["1.0", 2.0, 0.9, "A"]',
        f'[1{"0" * 400}, 2.0, 0.9, "A"]',
        "[" * 100_000,
    ],
    ids=lambda text: repr(text[:24]),
)
def test_a_score_that_was_never_written_is_corrupt(text: str) -> None:
    with pytest.raises(StoreCorruptError):
        decode("default", StoredCalibration(Version("x", 1), META, {"d": text}, {}))


@pytest.mark.parametrize("clusters", ["", "two", "null"])
def test_a_rule_for_pairs_of_one_question_that_was_never_written_is_corrupt(clusters: str) -> None:
    meta = {**META, "clusters": clusters}
    with pytest.raises(StoreCorruptError):
        decode("default", StoredCalibration(Version("x", 1), meta, {"d": SCORE}, {}))


def test_an_error_of_the_store_never_quotes_stored_data() -> None:
    with pytest.raises(StoreCorruptError) as raised:
        decode("default", StoredCalibration(Version("x", 1), META, {"d": "secret"}, {}))
    assert "secret" not in raised.value.detail


def test_data_that_this_version_wrote_are_read() -> None:
    found = decode("default", StoredCalibration(Version("x", 3), META, {"d": SCORE}, {}))
    assert found.examples == {"d": LabelledScore(1.0, -2.0, 0.9, "A")}
    assert (found.write_id, found.version, found.judge) == ("x", 3, "demo")


FOUR = {f"{i}" * 64: LabelledScore(float(i), -1.5, 0.9, "A") for i in range(4)}
SET = encode(Calibration("default", "x", 1, "demo", "f" * 64, 0.1, FOUR), changed=FOUR)
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
        ({"label_noise": "0.0"}, {}),
        ({"judge": "other"}, {}),
        ({"fingerprint": "e" * 64}, {}),
        ({"digest": "0" * 64}, {}),
        ({"digest": ""}, {}),
        ({"clusters": "ignore"}, {}),
        ({}, {ONE: json.dumps([0.0, -1.5, 0.9, None])}),
        ({}, {ONE: json.dumps([0.0, -1.5, 0.9, "A", "f" * 64])}),
    ],
)
def test_a_set_that_another_program_changed_is_corrupt(
    meta: dict[str, str], examples: dict[str, str | None]
) -> None:
    assert decode("default", SET).n == 4
    changed = {**SET.examples, **examples}
    found = SET._replace(
        meta={**SET.meta, **meta},
        examples={digest: score for digest, score in changed.items() if score is not None},
    )
    with pytest.raises(StoreCorruptError, match="delete the calibration and calibrate again"):
        decode("default", found)


def test_the_order_of_examples_and_the_spelling_of_numbers_do_not_matter() -> None:
    found = {digest: score.replace("1.5", "1.50") for digest, score in SET.examples.items()}
    turned = dict(reversed(found.items()))
    assert decode("default", SET._replace(examples=turned)).examples == FOUR


def test_a_set_without_a_digest_is_read_unless_examples_are_missing() -> None:
    meta = {field: value for field, value in SET.meta.items() if field != "digest"}
    assert decode("default", SET._replace(meta=meta)).examples == FOUR
    fewer = {digest: score for digest, score in SET.examples.items() if digest != ONE}
    with pytest.raises(StoreCorruptError, match="more or fewer"):
        decode("default", SET._replace(meta=meta, examples=fewer))
