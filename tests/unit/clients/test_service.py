"""Both clients against the service itself, with the scripted judge."""

from collections import UserList
from typing import Any

import httpx
import pytest

from scope_judge import ConflictError, ItemError, NotFoundError
from scope_judge.records import RequestUsage, SingleJudgment
from tests.unit.clients.client_kinds import KINDS, Kind, call

pytestmark = pytest.mark.parametrize("kind", KINDS)


def pair(gap: float, **fields: Any) -> dict[str, Any]:
    texts = {"response_a": f"quality={gap}", "response_b": "quality=0"}
    return {"question": "Which?", **texts, **fields}


def test_a_judgment_is_the_one_of_the_service(kind: Kind, service_url: str) -> None:
    found = call(kind, service_url, "judge", "Which?", "quality=3", "quality=0", id="x", alpha=0.2)
    answer = httpx.post(f"{service_url}/judge", json=pair(3, id="x", alpha=0.2)).json()
    assert isinstance(found, SingleJudgment)
    assert found.accepted
    assert found.calibration is not None
    assert found.usage == RequestUsage(**answer["usage"])
    for name, value in answer.items():
        if name not in ("calibration", "usage"):
            assert getattr(found, name) == value
    explained = call(kind, service_url, "judge", "Which?", "quality=3", "quality=0", explain=True)
    assert explained.explanation is not None


def test_responses_may_have_their_names_in_the_service(kind: Kind, service_url: str) -> None:
    named = {"response_a": "quality=0", "response_b": "quality=3"}
    assert call(kind, service_url, "judge", "Which?", **named).verdict == "B"
    for pair in ({}, {"a": "x"}, {"a": "x", **named}, {"a": "x", "b": "y", "response_b": "z"}):
        with pytest.raises(TypeError, match="response_a= and response_b="):
            call(kind, service_url, "judge", "Which?", **pair)


def test_messages_and_turns_are_judged(kind: Kind, service_url: str) -> None:
    question = [
        {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": "This."},
        {"role": "user", "content": "And now?"},
    ]
    assert call(kind, service_url, "judge", question, "quality=3", "quality=0").verdict == "A"
    turns = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]
    # Any sequence is a list, such as a column of a data set.
    a, b = UserList(["x", "quality=0"]), ("y", "quality=3")
    assert call(kind, service_url, "judge", turns, a, b).verdict == "B"


def test_several_alphas_are_asked_for_at_once(kind: Kind, service_url: str) -> None:
    asked = {"alpha": 0.2, "guarantee": "pac", "delta": 0.025}
    found = call(kind, service_url, "judge", "Which?", "quality=3", "quality=0", **asked)
    assert found.delta == 0.025
    shown = call(kind, service_url, "calibration", "default", alphas=(0.2, 0.3), delta=0.025)
    assert [(row.alpha, row.delta) for row in shown.requested] == [(0.2, 0.025), (0.3, 0.025)]
    assert shown.requested[0].threshold == found.threshold
    assert call(kind, service_url, "calibration").requested == ()


def test_many_pairs_have_results_in_order_and_errors_in_their_places(
    kind: Kind, service_url: str
) -> None:
    given: list[Any] = [pair(2.0, id=number) for number in range(700)]
    given[100] = pair(2.0, question=" ", id=100)
    given[300] = pair(2.0, id=300, calibration="no")
    given[650] = ("Which?", "quality=0", "quality=2")
    found = call(kind, service_url, "judge_many", given)
    assert [each.id for each in found] == [*range(650), None, *range(651, 700)]
    errors = {i: each.error.code for i, each in enumerate(found) if isinstance(each, ItemError)}
    assert errors == {100: "invalid_comparison", 300: "calibration_not_found"}
    assert {each.verdict for i, each in enumerate(found) if i not in (100, 300, 650)} == {"A"}
    assert found[650].verdict == "B"


def test_examples_of_several_requests_are_one_report(kind: Kind, service_url: str) -> None:
    name = f"many-{kind}"
    given: list[Any] = [
        (f"{number}?", f"quality={number / 100}", "quality=0", "A") for number in range(1, 700)
    ]
    given[500] = {**pair(1.0, question=" ", id="bad"), "label": "B"}
    given[600] = {**pair(1.0, question="tied"), "label": "tie"}
    report = call(kind, service_url, "calibrate", name, iter(given))
    assert (report.name, report.n, report.added, report.ties, report.failed) == (
        name,
        698,
        697,
        1,
        1,
    )
    assert report.version == 1, "all pairs are one version, however many requests judged them"
    (error,) = report.errors
    assert (error.index, error.id, error.error.code) == (500, "bad", "invalid_comparison")
    again = call(kind, service_url, "calibrate", name, given)
    assert (again.n, again.added, again.updated) == (698, 0, 697)
    detail = call(kind, service_url, "calibration", name)
    assert (detail.n, detail.labelled, detail.version) == (698, 697, again.version)
    assert {row.guarantee for row in detail.thresholds} == {"marginal", "pac"}
    assert detail.curve


def test_a_pair_with_two_labels_is_refused_before_the_set_changes(
    kind: Kind, service_url: str
) -> None:
    given: list[Any] = [
        ("Which?", "quality=1", "quality=2", "A"),
        ("Which?", "quality=2", "quality=1", "A"),
        ("And?", "quality=1", "quality=2", "B"),
    ]
    name = f"contradicting-{kind}"
    with pytest.raises(ConflictError, match="numbers 0 and 1 are one pair"):
        call(kind, service_url, "calibrate", name, given)
    with pytest.raises(NotFoundError):
        call(kind, service_url, "calibration", name)
    assert call(kind, service_url, "calibrate", name, given[1:]).added == 2
    with pytest.raises(ConflictError, match="another label"):
        call(kind, service_url, "calibrate", name, given[:1], change_labels=False)
    assert call(kind, service_url, "calibrate", name, given[:1]).changed_labels == 1


def test_the_best_pair_of_responses_is_a_better_and_a_worse_one(
    kind: Kind, service_url: str
) -> None:
    given = ["quality=1", "quality=9", "quality=-9"]
    assert call(kind, service_url, "best_pair", "Which?", given, alpha=None) == (1, 2)


def test_a_pool_of_several_requests_is_one_report_and_says_what_to_label(
    kind: Kind, service_url: str
) -> None:
    name = f"pool-{kind}"
    given: list[Any] = [
        (f"{number}?", f"quality={number / 100}", "quality=0") for number in range(1, 500)
    ]
    given[450] = pair(1.0, question=" ", id="bad")
    report = call(kind, service_url, "pool", name, iter(given))
    assert (report.name, report.n, report.added, report.known, report.failed) == (
        name,
        498,
        498,
        0,
        1,
    )
    (error,) = report.errors
    assert (error.index, error.id, error.error.code) == (450, "bad", "invalid_comparison")
    assert [place for place, digest in enumerate(report.digests) if digest is None] == [450]
    again = call(kind, service_url, "pool", name, given)
    assert (again.added, again.known, again.digests) == (0, 498, report.digests)
    options = {"alpha": 0.2, "delta": 0.1, "limit": 5}
    found = call(kind, service_url, "next_to_label", name, **options)
    assert (found.n, found.labelled, found.complete, len(found.digests)) == (498, 0, False, 5)
    assert set(found.digests) < set(report.digests)
    with pytest.raises(ConflictError, match="labels_missing"):
        call(kind, service_url, "judge", "Which?", "quality=4", "quality=0", calibration=name)
