"""A load generator in a process of its own: raw HTTP/1.1 over asyncio, one request at a time each.

httpx uses more CPU for a request than the service does, so it would measure itself. The generator
runs as a worker, `python -m tests.benchmarks.load OPTIONS`, and reads questions as JSON lines.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from tests.benchmarks.worker import answer_questions

_NAMES = ("quality=0.31", "quality=-1.27", "quality=2.05", "quality=0.88", "quality=-0.46")


class LoadError(Exception):
    """A request got an unexpected answer."""


class _Connection(asyncio.Protocol):
    """Sends the next body as soon as the last request is answered."""

    def __init__(self, bodies: Iterator[bytes], head: bytes, done: asyncio.Future[int]) -> None:
        self._bodies = bodies
        self._head = head
        self._done = done
        self._received = b""
        self._answered = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not an assertion: uvloop's transport has the methods but not the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        body = next(self._bodies, None)
        if body is None:
            self._transport.close()
            self._done.set_result(self._answered)
        else:
            self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        # An item that was not judged would be answered too fast.
        if not head.startswith(b"HTTP/1.1 200") or b'"error"' in body:
            self._fail(f"{head[:60]!r} {body[:300]!r}")
            return
        self._received = b""
        self._answered += 1
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was lost ({exc})")

    def _fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(LoadError(why))
            self._transport.close()


async def send_all(
    port: int, path: str, bodies: Iterator[bytes], *, connections: int, key: str | None = None
) -> tuple[int, float]:
    """Sends every body over that many connections; returns the number answered and the seconds."""
    loop = asyncio.get_running_loop()
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization}"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    dones: list[asyncio.Future[int]] = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for done in dones:

        def connection(done: asyncio.Future[int] = done) -> _Connection:
            return _Connection(bodies, head, done)

        await loop.create_connection(connection, "127.0.0.1", port)
    answered = sum(await asyncio.gather(*dones))
    return answered, time.perf_counter() - began


def single_bodies(first: int, count: int) -> Iterator[bytes]:
    """Yields bodies of /judge; each number gives a different comparison."""
    for i in range(first, first + count):
        yield _comparison(i)


def batch_bodies(first: int, count: int, size: int) -> Iterator[bytes]:
    """Yields bodies of /judge/batch with `size` comparisons; each number gives a different one."""
    numbers = iter(range(first, first + count * size))
    for _ in range(count):
        items = b",".join(map(_comparison, itertools.islice(numbers, size)))
        yield b'{"comparisons":[%b]}' % items


def _comparison(i: int) -> bytes:
    a, b = _NAMES[i % 5], _NAMES[(i // 5) % 5]
    return (
        f'{{"id":{i},"question":"Which of the two answers to question {i} is the better one, and '
        f'by how much?","response_a":"The first answer to {i} has {a}.",'
        f'"response_b":"The second answer to {i} has {b}."}}'
    ).encode()


class LoadGenerator:
    """Answers each question with the requests per second that the load reached."""

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        count, first = question["requests"], question["first"]
        if "batch" in question:
            bodies = batch_bodies(first, count, question["batch"])
        else:
            bodies = single_bodies(first, count)
        # Bodies are made before the clock starts.
        bodies = iter(list(bodies))
        sending = send_all(
            question["port"],
            question["path"],
            bodies,
            connections=question["connections"],
            key=question.get("key"),
        )
        answered, seconds = _run(sending)
        if answered != count:
            raise LoadError(f"{answered} of {count} requests were answered")
        return {"answered": answered, "seconds": seconds}


def _run(sending: Any) -> tuple[int, float]:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        # uvloop comes with vLLM. It keeps the generator from being the bottleneck.
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        answered, seconds = runner.run(sending)
    return int(answered), float(seconds)


if __name__ == "__main__":
    answer_questions(LoadGenerator(), started={"options": json.loads(sys.argv[1])})
