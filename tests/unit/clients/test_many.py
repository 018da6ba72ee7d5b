"""Streams of pairs: order, sizes of batches, splits, bounds, laziness, and leaving early."""

import asyncio
import itertools
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from scope_judge import (
    AsyncScopeClient,
    ItemError,
    Judgment,
    RequestError,
    ScopeClient,
)
from tests.patience import PATIENCE_S
from tests.unit.clients.client_kinds import KINDS, Kind, call
from tests.unit.clients.planned import (
    Clock,
    Handler,
    PlannedService,
    judgment,
    problem,
    serving,
)

both = pytest.mark.parametrize("kind", KINDS)


def pairs(count: int) -> list[tuple[str, str, str]]:
    """Pairs whose judgments have their numbers as p_bar."""
    return [(str(number), "a", "b") for number in range(count)]


def numbers(results: Sequence[Any]) -> list[int]:
    assert all(isinstance(each, Judgment) for each in results)
    return [int(each.p_bar) for each in results]


def join_threads() -> None:
    """Waits for the threads of streams that were left; a client closed before leaks a socket."""
    for thread in threading.enumerate():
        if thread.name.startswith("scope-judge"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@both
@pytest.mark.parametrize("count", [0, 1, 8, 9, 3000])
def test_results_are_in_the_order_of_the_pairs(kind: Kind, count: int) -> None:
    with serving(PlannedService()) as service:
        found = call(kind, service.url, "judge_many", pairs(count))
    assert numbers(found) == list(range(count))


@both
def test_batches_grow_with_the_speed_up_to_their_share_of_the_limit(kind: Kind) -> None:
    with serving(PlannedService()) as service:
        service.limits["max_batch"] = 400
        # The clock does not move, so every batch seems to take no time.
        call(kind, service.url, "judge_many", pairs(1000), clock=Clock())
    assert service.sizes[:2] == [8, 32]
    assert max(service.sizes) == 100
    assert sum(service.sizes) == 1000


@both
def test_a_batch_holds_no_more_bytes_than_the_limit(kind: Kind) -> None:
    long = [(str(number), "a" * 3000, "b" * 3000) for number in range(50)]
    with serving(PlannedService()) as service:
        service.limits["max_body_bytes"] = 20_000
        found = call(kind, service.url, "judge_many", long, clock=Clock())
    assert numbers(found) == list(range(50))
    assert max(service.sizes) == 2
    assert len(service.bodies) == 25


@both
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (504, "deadline_exceeded"),
        (413, "batch_too_large"),
        (422, "too_many_criteria"),
    ],
)
def test_a_batch_that_is_too_much_is_split(kind: Kind, status: int, code: str) -> None:
    def at_most_three(handler: Handler, body: dict[str, Any]) -> None:
        if len(body["comparisons"]) > 3:
            problem(status, code)(handler)
        else:
            handler.as_usual(body)

    with serving(PlannedService(rule=at_most_three)) as service:
        found = call(kind, service.url, "judge_many", pairs(64), clock=Clock())
    assert numbers(found) == list(range(64))
    # No batch is sent again as it was.
    asked = [tuple(item["question"] for item in body["comparisons"]) for body in service.bodies]
    assert len(set(asked)) == len(asked)


@both
def test_a_single_pair_that_is_too_much_is_an_error_of_this_pair(kind: Kind) -> None:
    def not_seven(handler: Handler, body: dict[str, Any]) -> None:
        if any(item["question"] == "7" for item in body["comparisons"]):
            problem(504, "deadline_exceeded")(handler)
        else:
            handler.as_usual(body)

    given = [{"id": n, "question": str(n), "response_a": "a", "response_b": "b"} for n in range(20)]
    with serving(PlannedService(rule=not_seven)) as service:
        found = call(kind, service.url, "judge_many", given, clock=Clock())
    error = found.pop(7)
    assert isinstance(error, ItemError)
    assert (error.id, error.error.code, error.error.status) == (7, "deadline_exceeded", 504)
    assert numbers(found) == [n for n in range(20) if n != 7]


def fail(handler: Handler, body: dict[str, Any], bad: dict[str, dict[str, Any]]) -> None:
    results = [
        {"id": None, "error": bad[item["question"]]} if item["question"] in bad else judgment(item)
        for item in body["comparisons"]
    ]
    handler.send(200, json.dumps({"results": results}).encode())


@both
def test_an_error_of_an_item_is_an_item(kind: Kind) -> None:
    error = {"type": "x", "title": "T", "status": 413, "code": "prompt_too_long", "detail": "long"}
    with serving(PlannedService(rule=lambda h, b: fail(h, b, {"3": error}))) as service:
        found = call(kind, service.url, "judge_many", pairs(6), clock=Clock())
    assert isinstance(found[3], ItemError)
    assert found[3].error.code == "prompt_too_long"
    assert isinstance(found[3].error.exception(), RequestError)
    assert len(service.bodies) == 1


@both
def test_an_item_with_a_passing_error_is_asked_again_alone(kind: Kind) -> None:
    error = {"type": "x", "title": "T", "status": 503, "code": "engine_unavailable", "detail": "d"}
    service = PlannedService([lambda handler: fail(handler, service.bodies[0], {"3": error})])
    clock = Clock()
    with serving(service):
        found = call(kind, service.url, "judge_many", pairs(6), clock=clock)
    assert numbers(found) == list(range(6))
    assert service.sizes == [6, 1]
    assert clock.pauses == [0.5]


@both
def test_an_item_whose_error_does_not_pass_in_time_stays_an_error(kind: Kind) -> None:
    error = {"type": "x", "title": "T", "status": 503, "code": "engine_unavailable", "detail": "d"}
    clock = Clock()
    with serving(PlannedService(rule=lambda h, b: fail(h, b, {"3": error}))) as service:
        found = call(kind, service.url, "judge_many", pairs(6), clock=clock, client_patience_s=10)
    assert isinstance(found[3], ItemError)
    assert numbers(found[:3] + found[4:]) == [0, 1, 2, 4, 5]
    assert clock.pauses == [0.5, 1, 2, 4]


@both
def test_results_before_a_failure_come_first(kind: Kind) -> None:
    def until_twenty(handler: Handler, body: dict[str, Any]) -> None:
        if any(int(item["question"]) >= 20 for item in body["comparisons"]):
            problem(422, "invalid_request")(handler)
        else:
            handler.as_usual(body)

    found: list[Any] = []

    async def collect(url: str) -> None:
        async with AsyncScopeClient(url) as client:
            async for each in client.judge_many(pairs(100)):
                found.append(each)

    def collect_now(url: str) -> None:
        with ScopeClient(url) as client:
            found.extend(client.judge_many(pairs(100)))

    with (
        serving(PlannedService(rule=until_twenty)) as service,
        pytest.raises(RequestError, match="invalid_request"),
    ):
        asyncio.run(collect(service.url)) if kind == "async" else collect_now(service.url)
    # The first batch has 8 pairs, and no batch begins after the failure of the second.
    assert numbers(found) == list(range(8))


@both
def test_no_more_requests_are_in_flight_than_allowed_and_as_many_are(kind: Kind) -> None:
    allowed, lock, now = 4, threading.Lock(), [0, 0]
    # The first batch is alone, because its time is measured; the next four meet here.
    together = threading.Barrier(allowed)

    def counted(handler: Handler, body: dict[str, Any]) -> None:
        with lock:
            now[0] += 1
            now[1] = max(now)
        if len(service.bodies) > 1 and not together.broken and 8 <= first(body) < 136:
            together.wait(PATIENCE_S)
        # Counted before the client can see the answer.
        with lock:
            now[0] -= 1
        handler.as_usual(body)

    def first(body: dict[str, Any]) -> int:
        return int(body["comparisons"][0]["question"])

    with serving(PlannedService(rule=counted)) as service:
        found = call(kind, service.url, "judge_many", pairs(2000), clock=Clock())
    assert numbers(found) == list(range(2000))
    assert now == [0, allowed]


def test_no_batch_is_sent_while_results_are_there_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A request that is answered before the next one is begun, as may happen on a busy machine.
    class Prompt(threading.Thread):
        def start(self) -> None:
            super().start()
            self.join()

    with serving(PlannedService()) as service, ScopeClient(service.url) as client:
        monkeypatch.setattr("scope_judge.client.threading.Thread", Prompt)
        next(client.judge_many(pairs(100)))
        monkeypatch.undo()
    assert service.sizes == [8]


def test_pairs_are_read_as_they_are_needed() -> None:
    read = itertools.count()
    endless = ((str(number), "a", "b") for number in read)
    with serving(PlannedService()) as service, ScopeClient(service.url) as client:
        results = client.judge_many(endless)
        assert service.headers == [], "nothing is sent before the first result is asked for"
        assert numbers(list(itertools.islice(results, 100))) == list(range(100))
        results.close()
        join_threads()
    # Eight batches of at most 250, and the pair that fills the last one.
    assert next(read) <= 8 * 250 + 100


def test_a_caller_who_leaves_does_not_wait_for_answers() -> None:
    release = threading.Event()

    def held(handler: Handler, body: dict[str, Any]) -> None:
        if len(service.bodies) > 1:
            assert release.wait(PATIENCE_S)
        handler.as_usual(body)

    with serving(PlannedService(rule=held)) as service, ScopeClient(service.url) as client:
        results = client.judge_many(pairs(1000))
        assert numbers([next(results)]) == [0]
        results.close()
        release.set()
        join_threads()


def test_a_cancelled_task_leaves_no_work_behind() -> None:
    arrived, release = threading.Event(), threading.Event()

    def held(handler: Handler, body: dict[str, Any]) -> None:
        arrived.set()
        assert release.wait(PATIENCE_S)
        handler.as_usual(body)

    async def work(url: str) -> list[Any]:
        async with AsyncScopeClient(url) as client:
            return [each async for each in client.judge_many(pairs(100))]

    async def main(url: str) -> None:
        task = asyncio.create_task(work(url))
        assert await asyncio.to_thread(arrived.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with serving(PlannedService(rule=held)) as service:
        asyncio.run(main(service.url))
        release.set()


@both
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("abc", "number 1 is not a pair: (question, a, b)"),
        (("q", "a"), "number 1 is not a pair: (question, a, b)"),
        (None, "or a mapping with question, response_a, response_b"),
        (("q", b"a", "b"), "bytes is neither a text nor a list of texts or messages"),
        ({"question": "q", "explain": True}, "number 1 has `explain`, which is for `judge` only"),
    ],
)
def test_something_that_is_no_pair_is_named_by_its_number(kind: Kind, bad: Any, words: str) -> None:
    with serving(PlannedService()) as service, pytest.raises(TypeError) as caught:
        call(kind, service.url, "judge_many", [*pairs(1), bad])
    assert words in str(caught.value)
