"""Tests of shutdown: requests in progress are answered, and a proxy has time to notice."""

import http.client
import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, wait_until
from tests.unit.api.problems import comparison, problem

SCRIPTED = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
PLAIN = comparison(alpha=None)


class HalfRequest:
    """A judgment request without the last byte of its body."""

    def __init__(self, port: int) -> None:
        body = json.dumps(PLAIN).encode()
        head = (
            "POST /judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._last = body[-1:]
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.sendall(head.encode() + body[:-1])

    def finish(self) -> None:
        """Sends the last byte."""
        self._socket.sendall(self._last)

    def answer(self) -> tuple[int, bytes]:
        """Reads until the server closes the connection; returns the status and all bytes."""
        received = b""
        while part := self._socket.recv(65536):
            received += part
        self._socket.close()
        return int(received.split()[1]), received


def until_refused(server: Server) -> None:
    """Waits until the service refuses connections."""

    def is_refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(is_refused)


def until_draining(server: Server) -> None:
    """Waits until /readyz fails."""
    wait_until(lambda: server.client.get("/readyz").status_code != 200)
    problem(server.client.get("/readyz"), "draining")


def judge_on_a_new_connection(server: Server) -> int:
    """The status of a judgment, requested like by a proxy that has not noticed the shutdown."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request("POST", "/judge", json.dumps(PLAIN), {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_after_sigterm_the_service_is_not_ready_and_judges_during_the_drain_lag(
    tmp_path: Path,
) -> None:
    lag_s = 5.0
    with Server(tmp_path, {**SCRIPTED, "SCOPE_DRAIN_LAG_S": f"{lag_s:g}"}) as server:
        begun = time.monotonic()
        server.send_signal(signal.SIGTERM)
        until_draining(server)
        judged = 0
        # Send requests for half of the lag: on a busy machine one may take the other half.
        while time.monotonic() - begun < lag_s / 2:
            assert judge_on_a_new_connection(server) == 200
            judged += 1
        assert judged > 2
        server.wait()
        assert time.monotonic() - begun >= lag_s


def test_requests_in_progress_are_answered_after_the_listener_has_closed(tmp_path: Path) -> None:
    with Server(tmp_path, SCRIPTED) as server:
        request = HalfRequest(server.port)
        server.send_signal(signal.SIGTERM)
        until_refused(server)
        request.finish()
        status, received = request.answer()
        assert status == 200
        assert b'"preferred":"A"' in received
        assert b"connection: close" in received.lower()
        server.wait()


def test_unfinished_requests_get_503_and_no_500_when_draining_ends(tmp_path: Path) -> None:
    with Server(tmp_path, {**SCRIPTED, "SCOPE_DRAIN_S": "1"}) as server:
        request = HalfRequest(server.port)
        server.send_signal(signal.SIGTERM)
        status, received = request.answer()
        assert status == 503
        assert b'"code":"draining"' in received
        server.wait()
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_ctrl_c_and_a_second_signal_skip_the_drain_lag(
    signals: list[signal.Signals], tmp_path: Path
) -> None:
    with Server(tmp_path, {**SCRIPTED, "SCOPE_DRAIN_LAG_S": "3600"}) as server:
        for which in signals[:-1]:
            server.send_signal(which)
            until_draining(server)
        server.send_signal(signals[-1])
        server.wait()
