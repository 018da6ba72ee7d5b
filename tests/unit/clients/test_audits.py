"""Both clients against audits of the service itself, with the scripted judge."""

from typing import Any

import httpx
import pytest

from scope_judge import RequestError
from scope_judge.records import Audit, AuditLabels, Label, PairTexts, Turn
from tests.unit.api.problems import examples
from tests.unit.clients.client_kinds import KINDS, Kind, call
from tests.unit.clients.conftest import running

pytestmark = pytest.mark.parametrize("kind", KINDS)


def drawn(kind: Kind, url: str, count: int) -> list[str]:
    """The ids of the audits of so many new judgments."""
    pairs = [(f"Traffic {i}?", f"quality={i % 5}.5", "quality=0") for i in range(count)]
    return [each.audit.id for each in call(kind, url, "judge_many", pairs)]


def label_counts(**counted: Any) -> AuditLabels:
    """The effect of labels with some counts; all others are 0."""
    counts = dict.fromkeys(("labelled", "closed", "updated", "unchanged", "unknown", "expired"), 0)
    return AuditLabels(**{**counts, "unknown_ids": (), "expired_ids": (), "earlier": (), **counted})


def test_more_labels_than_a_request_may_have_are_taken(kind: Kind, audited_url: str) -> None:
    ids = drawn(kind, audited_url, 1100)
    unknown = ["0" * 32, "1" * 32]
    labels: dict[str, Label] = dict.fromkeys((unknown[0], *ids, unknown[1]), "A")
    counted = call(kind, audited_url, "label_audits", labels)
    assert counted == label_counts(labelled=1100, unknown=2, unknown_ids=tuple(unknown))
    again = call(kind, audited_url, "label_audits", {ids[0]: "B", ids[1]: "A"})
    assert (again.labelled, again.updated, again.unchanged) == (0, 1, 1)
    listed = call(kind, audited_url, "audits", status="labelled")
    # Batches are judged at once, so their order may differ.
    assert {each.id: each.label for each in listed} == {**dict.fromkeys(ids, "A"), ids[0]: "B"}
    assert len(listed) == len(ids)
    assert all(isinstance(each, Audit) for each in listed)
    assert call(kind, audited_url, "audits", status="open") == ()
    assert call(kind, audited_url, "audits", "other") == ()


def test_an_audit_is_closed_with_a_reason(kind: Kind, audited_url: str) -> None:
    one, two = drawn(kind, audited_url, 2)
    closed = call(kind, audited_url, "close_audits", {one: "the texts are gone"})
    assert (closed.closed, closed.labelled) == (1, 0)
    (only,) = call(kind, audited_url, "audits", status="closed")
    assert (only.id, only.label) == (one, "none")
    assert [each.id for each in call(kind, audited_url, "audits", status="open")] == [two]
    with pytest.raises(RequestError, match="reason"):
        call(kind, audited_url, "close_audits", {two: ""})


def test_open_audits_are_read_with_the_texts_that_the_service_keeps(kind: Kind) -> None:
    turns = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3?"},
    ]
    with running(SCOPE_AUDIT_RATE="1", SCOPE_AUDIT_TEXTS="on") as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples()}).raise_for_status()
        # More than one page.
        ids = drawn(kind, url, 25)
        one = call(kind, url, "judge", turns, ["quality=3", "x"], ["quality=0", "y"])
        found = call(kind, url, "audits", texts=True)
        shown = {int(each.id, 16): each.texts for each in found}
        assert {number >> 1 for number in shown} == {int(i, 16) >> 1 for i in (*ids, one.audit.id)}
        # The id of the other order has the responses on the other sides.
        third = int(ids[3], 16)
        a, b = "quality=3.5", "quality=0"
        for number, (first, second) in {third: (a, b), third ^ 1: (b, a)}.items():
            texts = PairTexts(question="Traffic 3?", response_a=first, response_b=second)
            assert shown.get(number, texts) == texts
        conversation = tuple(Turn(**turn) for turn in turns)
        call(kind, url, "label_audits", dict.fromkeys(ids, "A"))
        (left,) = call(kind, url, "audits", "default", texts=True)
        assert int(left.id, 16) >> 1 == int(one.audit.id, 16) >> 1
        assert left.texts.question == conversation
        assert {left.texts.response_a, left.texts.response_b} == {
            ("quality=3", "x"),
            ("quality=0", "y"),
        }
        assert call(kind, url, "audits", "other", texts=True) == ()
