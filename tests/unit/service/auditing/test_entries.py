"""The log of audits is read as it was written; text of other programs is refused."""

import json
from typing import Any

import pytest

from app.service.auditing.entries import CriterionKey, Entry, parse_entry
from tests.unit.service.auditing.logs import PAC, drawn, labelled


@pytest.mark.parametrize(
    "entry",
    [
        drawn(1),
        drawn(2, criterion=PAC, accepted=False, label_noise=0.25, rate=1.0, at=1e9 + 0.125),
        drawn(3, criterion=CriterionKey(0.0501, "pac", 0.001), gap_fwd=-0.0, gap_rev=1e-300),
        drawn(4, calibration="a.b-c_1", version=2**53),
        labelled(5, "A"),
        labelled(6, "tie", by="é 裁判"),
    ],
)
def test_an_entry_survives_the_log(entry: Entry) -> None:
    assert parse_entry(entry.text) == entry


def test_an_entry_is_one_flat_object_without_texts_of_the_pair() -> None:
    fields = json.loads(drawn(1, criterion=PAC).text)
    assert list(fields) == [
        *("kind", "id", "calibration", "fingerprint", "digest", "question"),
        *("gap_fwd", "gap_rev", "label_mass", "write_id", "version", "label_noise"),
        *("accepted", "rate", "at", "alpha", "guarantee", "delta"),
    ]
    assert (fields["kind"], fields["alpha"], fields["guarantee"], fields["delta"]) == (
        *("draw", 0.1, "pac", 0.1),
    )
    assert json.loads(labelled(1, "B").text) == {
        "kind": "label", "id": f"{1:030x}00", "label": "B", "by": "ana", "at": 100.0
    }  # fmt: skip


def test_fields_and_kinds_of_a_later_release_are_ignored() -> None:
    later = {**json.loads(drawn(1).text), "new": [1]}
    assert parse_entry(json.dumps(later)) == drawn(1)
    assert parse_entry('{"kind": "reopened", "id": 7}') is None


@pytest.mark.parametrize("entry", [drawn(1), labelled(1, "A")])
def test_every_field_is_needed_and_checked(entry: Entry) -> None:
    fields: dict[str, Any] = json.loads(entry.text)
    for name in fields:
        wrongs: list[Any] = [{}, [], "\ud800", "x" * 9, -1, float("nan"), True, None]
        for wrong in wrongs:
            if fields[name] == wrong or (name, wrong) in MEANINGFUL:
                continue
            with pytest.raises(ValueError, match="entry"):
                assert parse_entry(json.dumps({**fields, name: wrong})) is not None, (name, wrong)
        with pytest.raises(ValueError, match="entry"):
            parse_entry(json.dumps({key: fields[key] for key in fields if key != name}))


# Pairs of field and value that a log may have.
MEANINGFUL = [
    *((name, "x" * 9) for name in ("kind", "calibration", "write_id", "by")),
    *((name, -1) for name in ("gap_fwd", "gap_rev", "label_mass", "at")),
    ("delta", None),
]


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "7", '{"kind": 3}', "[" * 100_000])
def test_text_that_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="entry"):
        parse_entry(text)
