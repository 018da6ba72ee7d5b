"""Hostile connections and bodies neither use up memory nor delay the callers of other keys."""

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.processes.server import Server
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples

_MOST_MEMORY_GROWTH = 0.10
_SECONDS = 2.0


def _request(path: str, *, key: str, length: int) -> bytes:
    value = header_of(key)["Authorization"]
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {value}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


_LISTS = b'{"comparisons": [' + b"[]," * 699_000 + b"[]]}"
# Each of 20 connections sends this once, before it reads.
FLOODS = {
    "pipelined requests": b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n" * 30_000,
    "headers without end": b"GET /info HTTP/1.1\r\n" + b"X-Header: 12345678\r\n" * 300_000,
    "a batch of empty lists": _request("/judge/batch", key="attacker", length=len(_LISTS)) + _LISTS,
    "a body without its last byte": _request("/calibrate", key="attacker", length=2**20)
    + b" " * (2**20 - 1),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    keys = write_keys(
        folder / "keys.json",
        entry("judge", ("judge", "calibrate")),
        entry("attacker", ("judge", "calibrate")),
    )
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_API_KEYS_FILE": str(keys),
    }
    with Server(folder, settings) as running:
        client, headers = running.client, header_of("judge")
        body = {"examples": examples(300)}
        client.post("/calibrate", json=body, headers=headers).raise_for_status()
        # The service reaches its usual memory.
        for number in range(300):
            asked = comparison(question=f"{number}?")
            client.post("/judge", json=asked, headers=headers).raise_for_status()
        yield running


@contextmanager
def _flood(port: int, content: bytes, connections: int = 20) -> Iterator[None]:
    """Sends this on many connections, and on new ones when the service closes them."""
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as sending:
                    sending.sendall(content)
                    while not over.wait(0.1):
                        if not sending.recv(65536):
                            break
            except OSError:
                over.wait(0.1)

    with ExitStack() as stack:
        for _ in range(connections):
            thread = threading.Thread(target=send)
            thread.start()
            stack.callback(thread.join)
        stack.callback(over.set)
        yield


def _memory(pid: int) -> int:
    """Resident pages of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


@pytest.mark.parametrize("name", FLOODS)
def test_an_attacker_costs_no_memory_and_no_judgment_of_another_key(
    name: str, server: Server
) -> None:
    idle, peak, statuses = _memory(server.pid), 0, []
    body = json.dumps(comparison())
    headers = {**header_of("judge"), "Content-Type": "application/json"}
    with _flood(server.port, FLOODS[name]):
        ends = time.monotonic() + _SECONDS
        while time.monotonic() < ends:
            # A connection of its own each time: the attacker may not take all of them.
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.request("POST", "/judge", body, headers)
            statuses.append(connection.getresponse().status)
            connection.close()
            peak = max(peak, _memory(server.pid))
            time.sleep(0.02)
    assert set(statuses) == {200}
    assert len(statuses) > 5
    # The body of each of 20 connections is held once, until it is refused.
    bodies = 20 * len(FLOODS[name]) if FLOODS[name].startswith(b"POST") else 0
    most = (1 + _MOST_MEMORY_GROWTH) * idle + bodies / os.sysconf("SC_PAGE_SIZE")
    assert peak <= most, (idle, peak, most)
