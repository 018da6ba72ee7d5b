"""Every call of the client returns a result or raises a ScopeError, also for damaged answers."""

import copy
import json
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import httpx
import pytest

from scope_judge import AnswerError, ScopeError, ServerError, records
from scope_judge.batches import Stream
from scope_judge.calls import Calls
from scope_judge.exchange import Call, OneGroup, Steps
from tests.unit.clients.planned import INFO

PAIR = ("question", "a", "b")
EXAMPLES: list[Any] = [("q", "a", "b", "A")] * 2
MISSING = object()
HOSTILE = [
    MISSING,
    None,
    True,
    -1,
    99,
    10**400,
    1e308,
    "",
    "\x1b]0;x\x07",
    [],
    [[]],
    {},
    {"error": 1},
]


def example(hint: Any) -> Any:
    """JSON that fits a type; lists have two items."""
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return {each.name: example(hints[each.name]) for each in fields(hint)}
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return example(args[0])
    if origin is Literal:
        return args[0]
    if origin is dict:
        return {"x": example(args[1])}
    if origin is tuple:
        return [example(args[0]), example(args[0])]
    return {str: "x", int: 1, float: 0.5, bool: True}[hint]


JUDGMENT = example(records.SingleJudgment)
GROUP = example(records.Rewards)
FAILED = example(records.Problem)


class Bare(Calls):
    """A client that runs nothing: its methods return their steps."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", None, 0, confirmed_only=False)

    def _run(self, steps: Steps[Any]) -> Steps[Any]:
        return steps

    def _streamed(self, stream: Stream[Any]) -> Steps[list[Any]]:
        work = yield from stream.preparation
        items = [stream.item(given, number) for number, given in enumerate(stream.inputs)]
        yield from work.steps(items)
        found: list[Any] = []
        while results := work.take():
            found += results
        return found


# The calls of a client that check more than the shape of an answer, and one that does not.
CALLS: dict[str, tuple[Callable[[Any], Steps[Any]], Any]] = {
    "judge": (lambda client: client.judge(*PAIR), JUDGMENT),
    "judge_many": (
        lambda client: client.judge_many([PAIR] * 2),
        {"results": [JUDGMENT, {"id": None, "error": FAILED}]},
    ),
    "group_rewards": (lambda client: client.group_rewards("q", ["a", "b"]), GROUP),
    "rewards_many": (
        lambda client: client.rewards_many([("q", ["a", "b"])] * 2),
        {"groups": [{**GROUP, "comparisons": None, "errors": []}, {"id": None, "error": FAILED}]},
    ),
    "calibrate": (
        lambda client: client.calibrate("default", EXAMPLES),
        {
            **INFO,
            **example(records.CalibrationReport),
            **example(records.Scores),
            "fingerprint": INFO["fingerprint"],
            "errors": [],
        },
    ),
    "score_many": (
        lambda client: client.score_many(EXAMPLES),
        {**example(records.Scores), "fingerprint": "f", "errors": []},
    ),
    "examples": (
        lambda client: client.examples("default", most=2),
        example(records.ExamplePage),
    ),
    "pool": (lambda client: client.pool("default", [PAIR] * 2), example(records.PoolReport)),
    "audits": (
        lambda client: client.audits(),
        {**example(records.AuditPage), "next_after": None},
    ),
}


def outcome(name: str, content: bytes, status: int = 200) -> Any:
    """The result of a call that is answered with this content, or its error."""
    asked, _ = CALLS[name]
    client = Bare()
    steps, answer = [asked(client)], None
    while True:
        try:
            step = steps[-1].send(answer)
        except StopIteration as end:
            answer = end.value
            steps.pop()
            if not steps:
                return answer
            continue
        except ScopeError as exc:
            return exc
        answer = None
        if isinstance(step, OneGroup):
            steps.append(client._rewards_of(step.group, step.rule))
        elif isinstance(step, Call):
            info = step.path == "/info"
            answer = httpx.Response(
                200 if info else status, content=json.dumps(INFO).encode() if info else content
            )


def changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts, and the whole, replaced by hostile ones."""
    yield from (each for each in HOSTILE if each is not MISSING)
    places = value.items() if isinstance(value, dict) else enumerate(value)
    for place, part in list(places):
        inner: Iterator[Any] = iter(HOSTILE)
        if isinstance(part, dict | list):
            inner = changed(part)
        for each in inner:
            whole = copy.copy(value)
            whole[place] = each
            if each is MISSING:
                del whole[place]
            yield whole


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_with_a_wrong_part_is_a_result_or_a_scope_error(name: str) -> None:
    _, answer = CALLS[name]
    assert not isinstance(outcome(name, json.dumps(answer).encode()), ScopeError)
    refused = 0
    for each in changed(answer):
        found = outcome(name, json.dumps(each).encode())
        refused += isinstance(found, AnswerError)
    assert refused > 10


@pytest.mark.parametrize(
    "result",
    [
        {"verdict": "A"},
        {**JUDGMENT, "verdict": "C"},
        {**JUDGMENT, "p_bar": "0.5"},
        {**JUDGMENT, "error": None},
        {"error": {"code": "internal"}},
        {},
    ],
)
def test_a_batch_with_a_result_of_another_shape_has_no_results(result: dict[str, Any]) -> None:
    content = json.dumps({"results": [JUDGMENT, result]}).encode()
    assert isinstance(outcome("judge_many", content), AnswerError)


@pytest.mark.parametrize("status", [200, 404, 500, 503])
@pytest.mark.parametrize("name", ["judge", "judge_many", "calibrate", "group_rewards"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 200_000, id="brackets"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, id="closed brackets"),
        pytest.param(b'{"a":' * 200_000, id="objects"),
        pytest.param(b'{"verdict": NaN}', id="NaN"),
        pytest.param(b'{"p_bar": 1e999}', id="infinite"),
        pytest.param(b'{"p_bar": ' + b"9" * 5000 + b"}", id="long number"),
        pytest.param(b'{"verdict": "\xff\xfe"}', id="not UTF-8"),
        pytest.param(b'\xff\xfe{"', id="cut UTF-16"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"code": {"a": 1}, "detail": ["x"]}', id="problem of other types"),
    ],
)
def test_content_that_is_not_json_is_a_scope_error(name: str, content: bytes, status: int) -> None:
    assert isinstance(outcome(name, content, status), ScopeError)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 400])
def test_a_number_that_no_judgment_has_is_refused(value: str) -> None:
    content = json.dumps(JUDGMENT).replace('"p_bar": 0.5', f'"p_bar": {value}')
    assert value in content
    assert isinstance(outcome("judge", content.encode()), AnswerError)


@pytest.mark.parametrize("index", [-1, 2])
def test_an_error_of_a_pair_that_was_not_sent_is_refused(index: int) -> None:
    _, answer = CALLS["pool"]
    content = json.dumps({**answer, "errors": [{**answer["errors"][0], "index": index}]}).encode()
    assert isinstance(outcome("pool", content), AnswerError)


@pytest.mark.parametrize("digests", [[], ["x"], ["x"] * 3])
def test_digests_of_another_number_of_pairs_are_refused(digests: list[str]) -> None:
    content = json.dumps({**CALLS["pool"][1], "digests": digests}).encode()
    assert isinstance(outcome("pool", content), AnswerError)


def test_pages_that_repeat_are_refused() -> None:
    again = {**CALLS["audits"][1], "next_after": 7}
    assert isinstance(outcome("audits", json.dumps(again).encode()), AnswerError)


def test_an_error_shows_no_character_that_steers_a_terminal() -> None:
    steering = "a\x1b]0;x\x07\x9b2J\r\n\u202eb\ud800\u2028"
    content = json.dumps({"code": "internal", "detail": steering}).encode()
    found = outcome("judge", content, 500)
    assert isinstance(found, ServerError)
    assert found.detail == steering
    assert str(found) == (r"internal: a\x1b]0;x\x07\x9b2J\r\n\u202eb\ud800\u2028")
