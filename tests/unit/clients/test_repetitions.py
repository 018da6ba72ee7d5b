"""Only a 429, a 503 and a broken connection are tried again; other errors say what to do."""

import json
import socket
from typing import Any

import pytest

from scope_judge import (
    AnswerError,
    AuthenticationError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RequestError,
    ScopeError,
    ServerError,
    TooLargeError,
    TooSlowError,
    UnavailableError,
)
from scope_judge.exchange import Pause
from tests.programs import free_port
from tests.unit.clients.client_kinds import KINDS, Kind, call
from tests.unit.clients.planned import (
    Act,
    Clock,
    Handler,
    PlannedService,
    hang_up,
    judgment,
    page,
    problem,
    reset_in_body,
    serving,
)

PAIR = ("question", "a", "b")

pytestmark = pytest.mark.parametrize("kind", KINDS)


def test_a_wait_is_logged_as_a_warning(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    with serving(PlannedService([problem(503, "draining")])) as service:
        call(kind, service.url, "judge", *PAIR, clock=Clock(), client_patience_s=9)
    (line,) = [record for record in caplog.records if record.name == "scope_judge"]
    assert (line.levelname, line.getMessage()) == (
        "WARNING",
        "waiting 0.5 s for the service: draining: no: draining",
    )


@pytest.mark.parametrize(
    ("act", "pause"),
    [
        # Half of one second: chance is 0.5.
        (problem(429, "overloaded"), 0.5),
        (problem(503, "draining"), 0.5),
        (problem(429, "overloaded", Retry_After="7"), 7.5),
        (problem(503, "engine_unavailable", Retry_After="0"), 0.5),
        (problem(503, "draining", Retry_After="soon"), 0.5),
        (page(503), 0.5),
        (problem(504, "deadline_exceeded"), 0.5),
        (page(504), 0.5),
        (hang_up, 0.5),
        (reset_in_body, 0.5),
    ],
)
def test_a_passing_error_is_tried_again(kind: Kind, act: Act, pause: float) -> None:
    clock, waits = Clock(), list[Pause]()
    with serving(PlannedService([act])) as service:
        found = call(
            kind,
            service.url,
            "judge",
            *PAIR,
            clock=clock,
            client_patience_s=100,
            client_on_wait=waits.append,
        )
    assert found.verdict == "A"
    assert len(service.bodies) == 2
    assert clock.pauses == pytest.approx([pause])
    assert [wait.seconds for wait in waits] == clock.pauses


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "unauthenticated", AuthenticationError),
        (403, "forbidden", ForbiddenError),
        (404, "calibration_not_found", NotFoundError),
        (405, "method_not_allowed", RequestError),
        (409, "judge_mismatch", ConflictError),
        (413, "prompt_too_long", TooLargeError),
        (422, "invalid_request", RequestError),
        (500, "internal", ServerError),
        (502, "judgment_failed", ServerError),
    ],
)
def test_any_other_error_is_raised_at_once(
    kind: Kind, status: int, code: str, error: type[ScopeError]
) -> None:
    words = "requires a key" if status == 401 else f"no: {code}"
    assert_raised_at_once(kind, problem(status, code), error, code, status, words)


@pytest.mark.parametrize(
    ("act", "status", "words"),
    [
        (page(200), 200, "check that url"),
        (page(200, b"[1]"), None, "scope-judge service"),
        (page(404), 404, "check that url (or SCOPE_URL)"),
        (page(404, b'{"detail": "Not Found"}'), 404, "check that url"),
        (page(301, Location="https://x/?secret=1"), 301, "a redirect to https://x/:"),
    ],
)
def test_the_answer_of_another_server_is_an_error(
    kind: Kind, act: Act, status: int | None, words: str
) -> None:
    assert_raised_at_once(kind, act, AnswerError, "unexpected_answer", status, words)


def assert_raised_at_once(
    kind: Kind, act: Act, error: type[ScopeError], code: str, status: int | None, words: str
) -> None:
    with serving(PlannedService([act])) as service, pytest.raises(ScopeError) as caught:
        call(kind, service.url, "judge", *PAIR, client_patience_s=100)
    found = caught.value
    assert (type(found), found.code, found.status) == (error, code, status)
    assert words in found.detail
    assert str(found) == f"{found.code}: {found.detail}"
    assert len(service.bodies) == 1


def test_pauses_grow_and_end_with_the_patience(kind: Kind) -> None:
    clock = Clock(chance=1.0)
    with (
        serving(PlannedService([problem(503, "draining")] * 100)) as service,
        pytest.raises(UnavailableError, match="no: draining"),
    ):
        call(kind, service.url, "judge", *PAIR, clock=clock, client_patience_s=100)
    assert clock.pauses == [1, 2, 4, 8, 16, 30, 30]
    assert len(service.bodies) == 8


def test_a_service_that_asks_for_more_than_the_patience_is_not_waited_for(kind: Kind) -> None:
    clock = Clock()
    with (
        serving(PlannedService([problem(503, "draining", Retry_After="60")])) as service,
        pytest.raises(UnavailableError) as caught,
    ):
        call(kind, service.url, "judge", *PAIR, clock=clock, client_patience_s=59)
    assert caught.value.retry_after_s == 60
    assert clock.pauses == []


def test_an_address_that_never_answered_is_probably_wrong(kind: Kind) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UnavailableError) as caught:
        call(kind, url, "judge", *PAIR)
    assert caught.value.code == "no_connection"
    assert f"no answer from {url} (ConnectError" in caught.value.detail
    assert "`scope-judge serve`" in caught.value.detail
    assert "SCOPE_URL" in caught.value.detail


def test_a_service_that_was_there_is_waited_for(kind: Kind) -> None:
    # The first error shows that there is a service, so the lost connection is one of a restart.
    acts = [problem(503, "draining"), hang_up, hang_up]
    clock = Clock()
    with serving(PlannedService(acts)) as service:
        assert call(kind, service.url, "judge", *PAIR, clock=clock).verdict == "A"
    assert clock.pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("act", [reset_in_body, problem(503, "store_unavailable")])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("resume", ("x", "a reason")),
        ("rollback", ("x", 1)),
        ("delete_calibration", ("x",)),
    ],
)
def test_a_change_that_may_have_been_made_is_not_sent_again(
    kind: Kind, name: str, given: tuple[Any, ...], act: Act
) -> None:
    with serving(PlannedService([act])) as service:
        with pytest.raises(UnavailableError):
            call(kind, service.url, name, *given, clock=Clock(), client_patience_s=100)
        assert len(service.bodies) == 1


def test_the_clients_own_timeout_is_tried_again_while_the_patience_lasts(kind: Kind) -> None:
    given: dict[str, Any] = {"client_timeout_s": 0.05, "client_patience_s": 10, "clock": Clock()}
    groups = [("q", ["a", "b"])] * 2
    # The kernel accepts connections of this socket, and nobody answers.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name, *asked in (("judge", *PAIR), ("judge_many", [PAIR]), ("rewards_many", groups)):
            given["clock"] = Clock()
            with pytest.raises(TooSlowError, match="timeout_s") as caught:
                call(kind, url, name, *asked, **given)
            assert (caught.value.code, caught.value.status) == ("timeout", None)
            # Half of 1, 2, 4 and 8 s; the next pause would end after the patience.
            assert given["clock"].pauses == [0.5, 1.0, 2.0, 4.0]


def test_without_a_key_the_message_says_where_to_put_one(kind: Kind) -> None:
    with serving(PlannedService([page(401), problem(401, "unauthenticated")])) as service:
        with pytest.raises(AuthenticationError, match=r"status_401: .*api_key or in SCOPE_API_KEY"):
            call(kind, service.url, "judge", *PAIR)
        with pytest.raises(AuthenticationError, match="does not know the key"):
            call(kind, service.url, "judge", *PAIR, client_api_key="sj_1")


def unconfirmed(handler: Handler) -> None:
    """Answers with thresholds that the store has not confirmed for twelve seconds."""
    answer = {"results": [judgment({"question": "old"})]}
    handler.send(200, json.dumps(answer).encode(), {"Scope-Calibration-Age": "12"})


def test_thresholds_that_are_not_confirmed_are_asked_for_again_on_demand(kind: Kind) -> None:
    pairs = [{"question": "q", "response_a": "a", "response_b": "b"}]
    for only, requests in ((False, 1), (True, 2)):
        with serving(PlannedService([unconfirmed])) as service:
            call(
                kind,
                service.url,
                "judge_many",
                pairs,
                clock=Clock(),
                client_patience_s=100,
                client_confirmed_only=only,
            )
        assert len(service.bodies) == requests
