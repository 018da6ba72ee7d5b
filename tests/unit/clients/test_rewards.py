"""Rewards through both clients: None is no reward, and many groups are a few requests."""

from typing import Any

import pytest

from scope_judge import ItemError
from tests.unit.clients.client_kinds import KINDS, Kind, call
from tests.unit.clients.planned import Clock, PlannedService, serving

pytestmark = pytest.mark.parametrize("kind", KINDS)


def groups(count: int) -> list[tuple[str, list[str]]]:
    return [(f"{number}?", ["a", "b", "c", "d"][: 2 + number % 3]) for number in range(count)]


def test_a_response_without_an_accepted_comparison_has_no_reward(kind: Kind) -> None:
    with serving(PlannedService()) as service:
        found = call(kind, service.url, "rewards", "q", ["a", "b", "c"], alpha=0.2, opponents=1)
    assert found == [1.0, 1.0, None]
    assert service.bodies == [
        {"question": "q", "responses": ["a", "b", "c"], "alpha": 0.2, "opponents": 1}
    ]


def test_groups_have_their_rewards_in_order(kind: Kind) -> None:
    with serving(PlannedService()) as service:
        found = call(kind, service.url, "rewards_many", groups(300), clock=Clock(), reward="soft")
    assert [len(each.rewards) for each in found] == [2 + number % 3 for number in range(300)]
    assert len(service.bodies) < 30
    assert {body["reward"] for body in service.bodies} == {"soft"}


def test_a_bad_group_is_an_error_in_its_place(kind: Kind, service_url: str) -> None:
    good: Any = ("Which?", ["quality=1", "quality=0"])
    mapping = {"question": "Which?", "responses": ["quality=0", "quality=2"]}
    call_of_a_tool = [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]
    asked = [good, ("Which?", []), ("Which?", ["a", call_of_a_tool]), mapping, (" ", ["a", "b"])]
    asked += [{**mapping, "oponents": 1}, (*good, "quality=0.5"), {**mapping, "reference": "x"}]
    found = call(kind, service_url, "rewards_many", [*asked, ("Which?", ["alone"])])
    errors = [each for each in found if isinstance(each, ItemError)]
    assert [each.error.code for each in errors] == ["invalid_request"] * 4
    assert [None if each in errors else each.rewards for each in found] == [
        (1.0, -1.0),
        None,
        None,
        (-1.0, 1.0),
        None,
        None,
        (1.0, -1.0),
        found[7].rewards,
        (None,),
    ]
    assert found[8].reasons == ("unopposed",)
    assert call(kind, service_url, "rewards", "Which?", ["alone"]) == [None]


@pytest.mark.parametrize("bad", [None, ("q",), ("q", 3), ("q", ["a"], None), {"question": "q"}])
def test_something_that_is_no_group_is_named_by_its_number(kind: Kind, bad: Any) -> None:
    with serving(PlannedService()) as service, pytest.raises(TypeError, match="number 1 is not a"):
        call(kind, service.url, "rewards_many", [*groups(1), bad])
