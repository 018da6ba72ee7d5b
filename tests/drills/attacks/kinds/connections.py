"""Connections from strangers: pipelines, endless or slow heads, idle ones, and unread answers."""

import itertools
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair
from tests.drills.attacks.sockets import closed, connected, flood, trickle

_MIB = 2**20
_INFO = b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CHUNKED = (
    b"POST /judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@contextmanager
def _newcomer(scene: Scene) -> Iterator[Counter[str]]:
    """A key holder who opens a connection for every judgment; yields the count of statuses."""
    statuses: Counter[str] = Counter()
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.1):
            try:
                with scene.client(scene.judge_key, timeout_s=30) as client:
                    statuses[str(client.post("/judge", json=pair(1)).status_code)] += 1
            except httpx.HTTPError as exc:
                statuses[type(exc).__name__] += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        thread.join()


def _judged(statuses: Counter[str]) -> str:
    bad = {status: count for status, count in statuses.items() if status != "200"}
    assert not bad, f"a key holder who connects anew got {bad}, and {statuses['200']} x 200"
    return f"{statuses['200']} of {statuses['200']} new connections of a key holder judged"


def pipelined_requests(scene: Scene) -> str:
    """Sends many requests at once on each connection."""
    content = _INFO * (24 * _MIB // 20 // len(_INFO))
    with _newcomer(scene) as statuses, connected(scene.port, 20) as sockets:
        sent = flood(sockets, [content] * len(sockets), seconds=20)
        time.sleep(2)
    return f"{sent / _MIB:.1f} MB taken; {_judged(statuses)}"


def _endless(content: bytes, connections: int, *, seconds: float) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        with _newcomer(scene) as statuses, connected(scene.port, connections) as sockets:
            sent = flood(sockets, [content] * len(sockets), seconds=seconds)
            time.sleep(0.5)
            gone = closed(sockets)
        return f"{sent / _MIB:.1f} MB taken, {gone} of {connections} closed; {_judged(statuses)}"

    return run


_HEADERS = b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % i for i in range(8_000_000 // 10))
_ONE_HEADER = b"GET / HTTP/1.1\r\nx-long: " + b"y" * (200 * _MIB)
_TRAILERS = _CHUNKED + b"1\r\n \r\n0\r\n" + _HEADERS[16:]
_SMALL_CHUNKS = _CHUNKED + b"1\r\n \r\n" * (6 * _MIB // 6)


def idle_connections(scene: Scene) -> str:
    """Opens more connections than the service may have files, and sends nothing."""
    # The file limit of a usual login, set after the service has read the limit at its start.
    _, hard = resource.prlimit(scene.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(scene.pid, resource.RLIMIT_NOFILE, (1100, hard))
    with _newcomer(scene) as statuses, connected(scene.port, 1200) as sockets:
        time.sleep(15)
        gone = closed(sockets)
    return f"{gone} of 1200 closed; {_judged(statuses)}"


def slow_heads(scene: Scene) -> str:
    """Sends a byte of a head every half second on many connections."""
    with _newcomer(scene) as statuses, connected(scene.port, 900) as sockets:
        flood(sockets, [b"GET /info HTTP/1.1\r\nx: "] * len(sockets), seconds=5)
        trickle(sockets, b"y", every_s=0.5, seconds=13)
        gone = closed(sockets)
    return f"{gone} of {len(sockets)} closed; {_judged(statuses)}"


def large_partial_heads(scene: Scene) -> str:
    """Sends almost the largest accepted head on many connections, and waits."""
    head = b"GET /info HTTP/1.1\r\n" + b"".join(
        b"x-%d: %s\r\n" % (i, b"y" * 250) for i in range(60)
    )
    with _newcomer(scene) as statuses, connected(scene.port, 900) as sockets:
        flood(sockets, [head] * len(sockets), seconds=10)
        time.sleep(5)
        gone = closed(sockets)
    return f"{gone} of {len(sockets)} closed; {_judged(statuses)}"


def connection_flood(scene: Scene) -> str:
    """Opens and abandons connections as fast as possible."""
    deadline = time.monotonic() + 10
    opened = 0
    with _newcomer(scene) as statuses:
        while time.monotonic() < deadline:
            with connected(scene.port, 300) as sockets:
                opened += len(sockets)
    return f"{opened} connections; {_judged(statuses)}"


def unread_answers(scene: Scene) -> str:
    """Sends requests on many connections without reading any answer."""
    with _newcomer(scene) as statuses, connected(scene.port, 200, receive_bytes=2048) as sockets:
        deadline = time.monotonic() + 20
        for _ in itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count()):
            for each in sockets:
                try:
                    each.send(_INFO)
                except OSError:
                    continue
        gone = sum(1 for each in sockets if _is_gone(each))
    return f"{gone} of {len(sockets)} closed; {_judged(statuses)}"


def _is_gone(each: socket.socket) -> bool:
    try:
        each.send(b"\r\n")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


ATTACKS = (
    Attack(
        "pipelined-requests",
        "20 connections send 24 MB of pipelined GET /info",
        pipelined_requests,
        cheap=True,
    ),
    Attack(
        "endless-headers",
        "20 connections send headers without end",
        _endless(_HEADERS, 20, seconds=5),
        cheap=True,
    ),
    Attack(
        "endless-header",
        "one connection sends one header of 200 MB",
        _endless(_ONE_HEADER, 1, seconds=5),
    ),
    Attack(
        "endless-trailers",
        "20 connections send trailers without end after a body",
        _endless(_TRAILERS, 20, seconds=5),
    ),
    Attack(
        "chunks-of-one-byte",
        "20 connections send 6 MB each in chunks of one byte, without a key",
        _endless(_SMALL_CHUNKS, 20, seconds=10),
    ),
    Attack(
        "idle-connections",
        "1,200 connections that send nothing, at a limit of 1,100 open files",
        idle_connections,
    ),
    Attack(
        "slow-heads",
        "900 connections that send a byte of a head every half second",
        slow_heads,
    ),
    Attack(
        "large-partial-heads",
        "900 connections that send 15 KB of a head and wait",
        large_partial_heads,
    ),
    Attack(
        "connection-flood",
        "10 s of connections that are opened and abandoned, 300 at a time",
        connection_flood,
    ),
    Attack(
        "unread-answers",
        "200 connections that ask for 20 s and never read an answer",
        unread_answers,
    ),
)
