"""A log reader that stops reading: a pipe that fills up, and one that is full from the start."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair
from tests.integration.processes.server import Server

_REQUESTS = 5000
_SECONDS = 12.0
_FROZEN_S = 3.0
# Limit of a start with a full log. In the other attack the start is not measured.
_READY_WITHIN_S = 20.0
_STARTS_WITHIN_S = 60.0
_ENDS_WITHIN_S = 5.0


@contextmanager
def _unread_pipe() -> Iterator[int]:
    reading, writing = os.pipe()
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def _server(scene: Scene, name: str, output: int, *, start_timeout_s: float) -> Server:
    folder = scene.folder / name
    folder.mkdir()
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": "memory://",
        "PYTHONPATH": str(scene.code),
    }
    return Server(folder, settings, start_timeout_s=start_timeout_s, output=output)


def _answered(server: Server) -> int:
    """Requests answered before one is not, or before the time is over."""
    until = time.monotonic() + _SECONDS
    server.client.timeout = httpx.Timeout(_FROZEN_S)
    for number in range(_REQUESTS):
        try:
            server.client.post("/judge", json=pair(number) | {"alpha": None}).raise_for_status()
        except httpx.TimeoutException:
            return number
        if time.monotonic() > until:
            return number + 1
    return _REQUESTS


def fill_the_log(scene: Scene) -> str:
    """Sends requests to a service whose log nobody reads, then SIGTERM."""
    with (
        _unread_pipe() as writing,
        _server(scene, "unread", writing, start_timeout_s=_STARTS_WITHIN_S) as server,
    ):
        asked = time.monotonic()
        answered = _answered(server)
        frozen = time.monotonic() - asked < _SECONDS and answered < _REQUESTS
        begun = time.monotonic()
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(_ENDS_WITHIN_S)
            end = f"SIGTERM ended it in {time.monotonic() - begun:.1f} s"
        except subprocess.TimeoutExpired:
            server.kill()
            end = f"SIGTERM did not end it in {_ENDS_WITHIN_S:g} s"
            frozen = True
    assert not frozen, f"froze after {answered} requests; {end}"
    return f"{answered} requests answered; {end}"


def start_with_a_full_log(scene: Scene) -> str:
    """Starts a service whose log is a full pipe."""
    with _unread_pipe() as writing:
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writing, True)
        server = _server(scene, "full", writing, start_timeout_s=_READY_WITHIN_S)
        begun = time.monotonic()
        try:
            server.start()
            return f"ready after {time.monotonic() - begun:.1f} s"
        except AssertionError:
            raise AssertionError(f"was not ready within {_READY_WITHIN_S:g} s") from None
        finally:
            server.kill()
            server.client.close()


ATTACKS = (
    Attack(
        "unread-log",
        "the program that reads the log stops reading; 5,000 requests, then SIGTERM",
        fill_the_log,
        watched=False,
    ),
    Attack(
        "full-log-at-start",
        "the pipe of the log is full before the service starts",
        start_with_a_full_log,
        watched=False,
    ),
)
