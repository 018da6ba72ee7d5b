"""Every call of the client returns a result or raises a ScopeError, also for damaged answers."""

import copy
import gzip
import json
import types
import zlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import httpx
import pytest

from scope_judge import AnswerError, ScopeError, ServerError, TooSlowError, records
from scope_judge.address import Address
from scope_judge.comparisons import group_item, pair_item
from scope_judge.exchange import Call, Session, Steps, Timing
from scope_judge.service import Service
from tests.unit.clients.client_kinds import KINDS, Kind, call
from tests.unit.clients.planned import INFO, Clock, Handler, PlannedService, page, serving

PAIR = ("question", "a", "b")
PAIRS = [pair_item({"question": "q", "response_a": "a", "response_b": "b"}, n) for n in range(2)]
GROUPS = [group_item(("q", ["a", "b"]), n, "all") for n in range(2)]
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
# Each call of a client, and the answer to it.
CALLS: dict[str, tuple[Callable[[Service], Steps[Any]], Any]] = {
    "info": (lambda service: service.info(), INFO),
    "judge": (lambda service: service.judge(*PAIR, None, {}), JUDGMENT),
    "judge_batch": (
        lambda service: service.judge_batch([{"question": "q"}] * 2, {}),
        {"results": [JUDGMENT, {"id": None, "error": example(records.Problem)}]},
    ),
    "judge_many": (
        lambda service: worked(service.judging({}, 1), PAIRS),
        {"results": [JUDGMENT, {"id": None, "error": example(records.Problem)}]},
    ),
    "group_rewards": (lambda service: service.rewards_of(("q", ["a", "b"]), {}), GROUP),
    "reference_rewards": (
        lambda service: service.rewards_of(("q", ["a", "b"], "c"), {}),
        GROUP,
    ),
    "rewards_many": (
        lambda service: worked(service.rewarding({}, 1), GROUPS),
        {
            "groups": [
                {**GROUP, "comparisons": None, "errors": []},
                {"error": example(records.Problem)},
            ]
        },
    ),
    "calibrate": (
        lambda service: service.calibrate(EXAMPLES, {"calibration": "default"}),
        example(records.CalibrationReport),
    ),
    "pool": (
        lambda service: service.pool("default", [PAIR] * 2),
        example(records.PoolReport),
    ),
    "calibration": (
        lambda service: service.calibration("default", (), None),
        example(records.CalibrationDetail),
    ),
    "next_to_label": (
        lambda service: service.next_to_label("default", None, None, 2),
        example(records.NextLabels),
    ),
    "audits": (lambda service: service.audit_page(None, None, 0), example(records.AuditPage)),
    "audit_texts": (
        lambda service: service.audit_texts_page(None, 0),
        example(records.AuditPage),
    ),
    "label_audits": (
        lambda service: service.label_audits({"x": "A"}),
        example(records.AuditLabels),
    ),
    "absorb": (
        lambda service: service.absorb("default", {"dry_run": True}),
        example(records.AbsorbReport),
    ),
}


def worked(preparation: Steps[Any], items: list[Any]) -> Steps[list[Any]]:
    work = yield from preparation
    yield from work.steps(items)
    found: list[Any] = []
    while results := work.results.take():
        found += results
    return found


def outcome(name: str, content: bytes, status: int = 200) -> Any:
    """The result of a call that is answered with this content, or its error."""
    asked, _ = CALLS[name]
    steps = asked(Service(Session(Address("http://127.0.0.1:1", None), patience_s=0)))
    try:
        step = next(steps)
        while True:
            assert isinstance(step, Call)
            info = step.path == "/info" and name != "info"
            step = steps.send(
                httpx.Response(
                    200 if info else status, content=json.dumps(INFO).encode() if info else content
                )
            )
    except StopIteration as end:
        return end.value
    except ScopeError as exc:
        return exc


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
    assert isinstance(outcome("judge_batch", content), AnswerError)


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


def test_rewards_of_another_number_of_responses_are_refused() -> None:
    shorter = {**GROUP, "rewards": GROUP["rewards"][:1]}
    assert isinstance(outcome("group_rewards", json.dumps(shorter).encode()), AnswerError)


@pytest.mark.parametrize("index", [-1, 2])
@pytest.mark.parametrize("name", ["calibrate", "pool"])
def test_an_error_of_an_example_that_was_not_sent_is_refused(name: str, index: int) -> None:
    _, answer = CALLS[name]
    content = json.dumps({**answer, "errors": [{**answer["errors"][0], "index": index}]}).encode()
    assert isinstance(outcome(name, content), AnswerError)


@pytest.mark.parametrize("digests", [[], ["x"], ["x"] * 3])
def test_digests_of_another_number_of_pairs_are_refused(digests: list[str]) -> None:
    content = json.dumps({**CALLS["pool"][1], "digests": digests}).encode()
    assert isinstance(outcome("pool", content), AnswerError)


@pytest.mark.parametrize("name", ["audits", "audit_texts"])
def test_pages_of_audits_that_repeat_are_refused(name: str) -> None:
    again = {**CALLS[name][1], "next_after": 0}
    assert isinstance(outcome(name, json.dumps(again).encode()), AnswerError)


WHOLE = json.dumps(JUDGMENT).encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("gzip", gzip.compress(WHOLE)),
        ("GZIP", gzip.compress(WHOLE)),
        ("deflate", zlib.compress(WHOLE)),
        ("gzip, gzip", gzip.compress(gzip.compress(WHOLE))),
        ("gzip", gzip.compress(WHOLE)[:-20]),
        ("gzip", b"not gzip"),
        ("gzip", b"\x1f\x8b"),
    ],
)
def test_a_compressed_answer_is_refused_at_once_and_is_not_asked_for(
    kind: Kind, encoding: str, content: bytes
) -> None:
    clock = Clock()
    act = page(200, content, Content_Encoding=encoding)
    with (
        serving(PlannedService([act] * 2)) as service,
        pytest.raises(AnswerError, match="with a compressed body"),
    ):
        call(kind, service.url, "judge", *PAIR, clock=clock, client_patience_s=100)
    assert not clock.pauses
    assert [headers["Accept-Encoding"] for headers in service.headers] == ["identity"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_may_have_as_many_bytes_as_the_limit_and_no_more(
    kind: Kind, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scope_judge.transport.LARGEST_ANSWER_BYTES", 2000)
    acts = [page(200, WHOLE.ljust(2000)), page(status, WHOLE.ljust(2001))]
    with serving(PlannedService(acts)) as service:
        assert call(kind, service.url, "judge", *PAIR).verdict == "A"
        with pytest.raises(AnswerError, match="with more than 2000 bytes"):
            call(kind, service.url, "judge", *PAIR)


def in_pieces(handler: Handler) -> None:
    """Sends an answer in ten pieces, none of which takes long."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for piece in (*[b" "] * 9, WHOLE):
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    handler.wfile.write(b"0\r\n\r\n")


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_never_seems_to_end_is_given_up_after_the_timeout(kind: Kind) -> None:
    def asked(seconds_a_piece: int) -> Any:
        timing = Timing(monotonic=count(0, seconds_a_piece).__next__)
        with serving(PlannedService([in_pieces])) as service:
            options = {"client_timing": timing, "client_timeout_s": 60}
            return call(kind, service.url, "judge", *PAIR, **options)

    assert asked(1).verdict == "A"
    with pytest.raises(TooSlowError, match="not complete after 60 s"):
        asked(20)


def test_an_error_shows_no_character_that_steers_a_terminal() -> None:
    steering = "a\x1b]0;x\x07\x9b2J\r\n\u202eb\ud800\u2028"
    content = json.dumps({"code": "internal", "detail": steering}).encode()
    found = outcome("judge", content, 500)
    assert isinstance(found, ServerError)
    assert found.detail == steering
    assert str(found) == (r"internal: a\x1b]0;x\x07\x9b2J\r\n\u202eb\ud800\u2028")
