"""The log of audits is read as it was written; text of other programs is refused."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from app.audits.entries import (
    AlarmEnd,
    AlarmEntry,
    Entry,
    parse_entry,
    readable_entry,
)
from app.core.score import Score
from tests.unit.audits.logs import PAC, drawn, labelled

RANG = AlarmEntry(
    decider=drawn(1).decider,
    errors=20,
    audited=30,
    needed=200,
    suspends=True,
    after=0,
    by="ana",
    at=2.5,
    first_judged_at=0.5,
    last_judged_at=1.5,
)
ENDED = AlarmEnd(
    criterion=drawn(1).decider.criterion,
    alarm=61,
    because="resumed",
    version=3,
    reason="corrected labels",
    by="bob",
    at=3.5,
)


@pytest.mark.parametrize(
    "entry",
    [
        drawn(1),
        drawn(2, criterion=PAC, accepted=False, rate=1.0, at=1e9 + 0.125),
        drawn(3, criterion=replace(PAC, alpha=0.0501, delta=0.001), gap_fwd=-0.0, gap_rev=1e-300),
        drawn(4, calibration="a.b-c_1", version=2**53),
        drawn(4, wait_s=3600.0),
        drawn(5, score=Score(gap_fwd=0.5, gap_rev=None, label_mass=None)),
        labelled(5, "A"),
        labelled(6, "tie", by="é 裁判"),
        labelled(7, "none"),
        replace(labelled(8, "B"), yields=True),
        RANG,
        replace(RANG, decider=drawn(1, criterion=PAC, write_id="w3").decider, suspends=False),
        ENDED,
        replace(ENDED, criterion=PAC, because="version", reason=None),
        replace(RANG, needed=None),
    ],
)
def test_an_entry_survives_the_log(entry: Entry) -> None:
    assert parse_entry(entry.text) == entry


def test_an_entry_is_one_flat_object_without_texts_of_the_pair() -> None:
    entry = drawn(1, criterion=PAC, write_id="w3", version=3)
    assert json.loads(entry.text) == {
        "kind": "draw",
        "id": f"{1:030x}00",
        "calibration": "default",
        "fingerprint": "f" * 64,
        "digest": entry.digest,
        "question": entry.question,
        "gap_fwd": 1.5,
        "gap_rev": -0.25,
        "label_mass": 0.75,
        "write_id": "w3",
        "version": 3,
        "alpha": 0.1,
        "guarantee": "pac",
        "delta": 0.1,
        "accepted": True,
        "rate": 0.5,
        "at": 1.0,
        "by": "kim",
    }
    assert json.loads(labelled(1, "B").text) == {
        "kind": "label", "id": f"{1:030x}00", "label": "B", "by": "ana", "at": 100.0
    }  # fmt: skip
    # Another kind than a label, so that an earlier release does not take it for one.
    closed = json.loads(labelled(1, "none").text)
    assert (closed["label"], closed["reason"]) == ("none", "no text")


def test_fields_and_kinds_of_a_later_release_are_ignored() -> None:
    later = {**json.loads(drawn(1).text), "new": [1]}
    assert parse_entry(json.dumps(later)) == drawn(1)
    assert parse_entry('{"kind": "reopened", "id": 7}') is None


@pytest.mark.parametrize("entry", [drawn(1), labelled(1, "A")])
def test_every_field_is_needed_and_checked(entry: Entry) -> None:
    fields: dict[str, Any] = json.loads(entry.text)
    for name in fields:
        is_new = False
        wrongs: list[Any] = [{}, [], "\ud800", "x" * 9, "1", -1, 2**70, float("nan"), True, None]
        for wrong in wrongs:
            if fields[name] == wrong or (name, wrong) in MEANINGFUL:
                continue
            with pytest.raises(ValidationError):
                assert parse_entry(json.dumps({**fields, name: wrong})) is not None, (name, wrong)
        if not is_new:
            with pytest.raises(ValidationError):
                parse_entry(json.dumps({key: fields[key] for key in fields if key != name}))


# Pairs of field and value that a log may have.
MEANINGFUL = [
    *itertools.product(("kind", "calibration", "write_id", "by"), ("x" * 9, "1")),
    *itertools.product(("gap_fwd", "gap_rev", "label_mass", "at"), (-1, 2**70)),
    ("gap_rev", None),
    ("label_mass", None),
    ("delta", None),
    ("by", None),
]


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "7", '{"kind": 3}', "[" * 100_000])
def test_text_that_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        parse_entry(text)
    assert readable_entry(text) is None
