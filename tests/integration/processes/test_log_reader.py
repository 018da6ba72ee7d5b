"""Tests that the service continues if the program that reads its log stops reading."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes.server import SERVE, Server
from tests.traffic import figure_in
from tests.unit.api.problems import comparison

SCRIPTED = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
# Each request writes a line of about 60 bytes to the access log.
_REQUESTS = 300
_PIPE_BYTES = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that is full after 70 requests."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    yield reading, writing
    for end in (reading, writing):
        os.close(end)


def judge_many(server: Server) -> None:
    for _ in range(_REQUESTS):
        server.client.post("/judge", json=comparison(alpha=None)).raise_for_status()


def test_an_unread_log_delays_no_request_and_no_shutdown(
    pipe: tuple[int, int], tmp_path: Path
) -> None:
    with Server(tmp_path, SCRIPTED, output=pipe[1]) as server:
        judge_many(server)
        server.stop()
        os.set_blocking(pipe[0], False)
        # The log goes into the pipe, and the lines of the requests do not fit into it. None of them
        # may be in it: the log writes many lines at once, and the pipe takes all of them or none.
        written = os.read(pipe[0], _PIPE_BYTES)
        assert b"Started server process" in written
        assert written.count(b"POST") < _REQUESTS


def test_a_vanished_reader_stops_nothing_and_lost_lines_are_counted(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with Server(tmp_path, SCRIPTED, output=writing) as server:
        os.close(writing)
        os.close(reading)
        judge_many(server)
        metrics = server.client.get("/metrics").text
        assert figure_in(metrics, "scope_log_lines_dropped_total") > 0
        assert server.stop() == 0


def test_closed_output_does_not_prevent_a_start(tmp_path: Path) -> None:
    closed = ("/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *SERVE)
    with Server(tmp_path, SCRIPTED, command=closed) as server:
        assert server.client.post("/judge", json=comparison(alpha=None)).status_code == 200
        # No other file may get these descriptors, because libraries and child processes write to
        # them.
        for descriptor in (0, 1, 2):
            assert os.readlink(f"/proc/{server.pid}/fd/{descriptor}") == os.devnull
        assert server.stop() == 0
