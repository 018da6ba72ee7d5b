"""Sends attempts as bytes, and checks every answer."""

from collections.abc import Callable, Iterable

from tests.drills.fuzzing.attempts import Attempt, held_open
from tests.drills.fuzzing.promises import NO_HTTP, Answer
from tests.drills.fuzzing.scene import HANG_S, Scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.fuzzing.wire import Connection, Ended, NoAnswer

# Number of requests between two checks of the service itself.
CHECK_EVERY = 250


def send_all(
    scene: Scene,
    attempts: Iterable[Attempt],
    tally: Tally,
    on_request: Callable[[], None] = lambda: None,
) -> None:
    """Sends one attempt after the other, and checks the service between them."""
    for number, attempt in enumerate(attempts):
        connection = Connection(scene.server.port, timeout_s=HANG_S)
        connection.send(attempt.content, and_no_more=attempt.and_no_more)
        note(scene, attempt, connection.end(attempt.method), tally)
        on_request()
        if number % CHECK_EVERY == 0:
            note_health(scene, tally)
    note_health(scene, tally)


def hold_open(scene: Scene, tally: Tally, *, times: int) -> None:
    """Holds endless bodies open; the service must answer each when its time is over."""
    attempts = held_open(scene.key) * times
    connections = [Connection(scene.server.port, timeout_s=HANG_S) for _ in attempts]
    for attempt, connection in zip(attempts, connections, strict=True):
        connection.send(attempt.content)
    for attempt, connection in zip(attempts, connections, strict=True):
        ended = connection.end(attempt.method)
        # 408 is correct for an endless body; a route without a body answers at once.
        status = 408 if attempt.method == "POST" else 200
        right = isinstance(ended.answer, Answer) and ended.answer.status == status
        note(scene, attempt, ended, tally, server_error_is_right=right)
        if not right:
            tally.failed(f"an endless body is answered with {status}", repr(ended.answer)[:300])
    note_health(scene, tally)


def note_health(scene: Scene, tally: Tally) -> None:
    """Records whether the service is still ready and still judges in the same way."""
    check = "still ready, with the same answer to a known comparison"
    found = scene.faults()
    for fault in found:
        tally.failed(check, f"{scene.name}: {fault}")
    if not found:
        tally.passed(check)


def note(
    scene: Scene,
    attempt: Attempt,
    ended: Ended,
    tally: Tally,
    *,
    server_error_is_right: bool = False,
) -> None:
    """Records one exchange and its faults."""
    answer = ended.answer
    status = str(answer.status) if isinstance(answer, Answer) else answer.value
    seconds = None if server_error_is_right else ended.seconds
    tally.count(attempt.route or attempt.family, status, seconds)
    for check, fault in _faults(scene, attempt, answer, server_error_is_right):
        if fault is None:
            tally.passed(check)
        else:
            sent = ascii(attempt.content[:600])
            tally.failed(check, f"{scene.name}, {attempt.family}: {fault}\n  sent {sent}")


def _faults(
    scene: Scene, attempt: Attempt, answer: Answer | NoAnswer, server_error_is_right: bool
) -> list[tuple[str, str | None]]:
    if answer is NoAnswer.HANG:
        return [("no hang", f"silent for {HANG_S:g} s")]
    if answer is NoAnswer.CLOSED:
        fine = "closed" in attempt.allowed
        return [("answered", None if fine else "the connection was closed without an answer")]
    assert isinstance(answer, Answer)
    if (answer.status, answer.body) == NO_HTTP:
        fine = "no_http" in attempt.allowed
        return [("answered", None if fine else "uvicorn refused the bytes")]
    if attempt.family == "upgrade" and answer.status in (101, 400, 403, 426):
        # The WebSocket library answers these before any route does.
        return [("no WebSocket", "a WebSocket opened" if answer.status == 101 else None)]
    if answer.status >= 500 and not server_error_is_right:
        return [("no server error", f"{answer.status}: {answer.body[:300]!r}")]
    if attempt.method == "HEAD":
        return [("answered", None)]
    route = attempt.route
    if route is None and attempt.family == "odd path":
        # Some paths are odd only in their query, which routes ignore where they have none.
        route = scene.document.route_of(attempt.method, attempt.content.split(b" ", 2)[1])
    faults = scene.document.faults(route, answer)
    return [("as documented", faults[0] if faults else None)]
