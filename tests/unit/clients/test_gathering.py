"""Calls of the same few milliseconds are one batch; each gets its own rewards or its own error."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from scope_judge import AsyncScopeClient, RequestError, Rewards, ScopeError, TooLargeError
from tests.patience import PATIENCE_S
from tests.unit.clients.planned import Handler, PlannedService, problem, rewards, serving

RESPONSES = ["quality=2", "quality=0"]


async def asked(url: str, calls: Sequence[Any], **rule: Any) -> list[Any]:
    """The rewards or exceptions of groups that are asked for at once."""
    async with AsyncScopeClient(url, patience_s=0) as client:
        started = [
            client.group_rewards(*group, **rule)
            if len(group) == 2
            else client.reference_rewards(*group, **rule)
            for group in calls
        ]
        found: list[Any] = await asyncio.gather(*started, return_exceptions=True)
        return found


def test_calls_of_one_moment_are_one_batch_and_get_their_own_rewards(service_url: str) -> None:
    turned = RESPONSES[::-1]
    calls = [("A?", RESPONSES), ("B?", turned), ("C?", RESPONSES, "quality=1"), ("D?", ["alone"])]
    found = asyncio.run(asked(service_url, calls))
    assert [each.rewards for each in found] == [(1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (None,)]
    with serving(PlannedService()) as service:
        asyncio.run(asked(service.url, calls[:3]))
    ((groups),) = [body["groups"] for body in service.bodies]
    assert [each["question"] for each in groups] == ["A?", "B?", "C?"]


def test_calls_with_another_rule_are_another_batch() -> None:
    async def both(url: str) -> None:
        async with AsyncScopeClient(url) as client:
            started = [
                client.rewards("q", RESPONSES, alpha=alpha) for alpha in (0.1, 0.2, 0.1, 0.2)
            ]
            assert await asyncio.gather(*started) == [[1.0, None]] * 4

    with serving(PlannedService()) as service:
        asyncio.run(both(service.url))
    assert sorted(body["alpha"] for body in service.bodies) == [0.1, 0.2]


def test_a_call_that_is_alone_is_a_request_of_its_own() -> None:
    with serving(PlannedService()) as service:
        asyncio.run(asked(service.url, [("q", RESPONSES)]))
        asyncio.run(asked(service.url, [("q", RESPONSES, "r")]))
    assert service.bodies == [
        {"question": "q", "responses": RESPONSES},
        {"question": "q", "responses": RESPONSES, "reference": "r"},
    ]


def test_an_error_of_one_call_is_of_this_call_only(service_url: str) -> None:
    calls: list[Any] = [("A?", RESPONSES), (" ", RESPONSES), ("B?", 3), ("C?", RESPONSES, None)]
    found = asyncio.run(asked(service_url, [*calls, ("D?", RESPONSES)]))
    kinds = [Rewards, RequestError, TypeError, TypeError, Rewards]
    assert [type(each) for each in found] == kinds
    # A group that is too large for a request of 300 comparisons.
    large = ("A?", [f"quality={i}" for i in range(30)])
    found = asyncio.run(asked(service_url, [("B?", RESPONSES), large, ("C?", RESPONSES)]))
    assert [type(each) for each in found] == [Rewards, TooLargeError, Rewards]


def test_an_error_of_the_whole_batch_is_of_each_call() -> None:
    with serving(PlannedService([problem(403, "forbidden")])) as service:
        found = asyncio.run(asked(service.url, [("A?", RESPONSES), ("B?", RESPONSES)]))
    assert [each.code for each in found if isinstance(each, ScopeError)] == ["forbidden"] * 2


@pytest.mark.parametrize("moment", ["before the batch is sent", "while it is judged"])
def test_a_cancelled_call_leaves_the_others(moment: str) -> None:
    arrived, has_left = asyncio.Event(), threading.Event()

    def slow(handler: Handler, body: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(arrived.set)
        assert has_left.wait(PATIENCE_S)
        groups = [rewards(each) for each in body["groups"]]
        handler.send(200, json.dumps({"groups": groups}).encode())

    async def cancelled(url: str) -> None:
        async with AsyncScopeClient(url) as client:
            questions = ("A?", "B?", "C?")
            tasks = [asyncio.create_task(client.rewards(each, RESPONSES)) for each in questions]
            if moment == "while it is judged":
                await arrived.wait()
            else:
                await asyncio.sleep(0)
            tasks[1].cancel()
            has_left.set()
            first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
            assert first == third == [1.0, None]
            assert isinstance(second, asyncio.CancelledError)

    loop = asyncio.new_event_loop()
    with serving(PlannedService(rule=slow)) as service:
        loop.run_until_complete(cancelled(service.url))
        loop.close()
    sent = 3 if moment == "while it is judged" else 2
    assert [len(body["groups"]) for body in service.bodies] == [sent]


def test_a_batch_that_nobody_waits_for_is_not_sent() -> None:
    async def all_cancelled(url: str) -> None:
        async with AsyncScopeClient(url) as client:
            tasks = [asyncio.create_task(client.rewards("q", RESPONSES)) for _ in range(3)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Calls after that have a batch of their own.
            again = [client.rewards(each, RESPONSES) for each in ("A?", "B?")]
            assert await asyncio.gather(*again) == [[1.0, None]] * 2

    with serving(PlannedService()) as service:
        asyncio.run(all_cancelled(service.url))
    assert [len(body["groups"]) for body in service.bodies] == [2]
