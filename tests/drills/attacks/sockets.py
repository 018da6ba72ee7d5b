"""Raw connections of an attacker: many at once, none of which waits for another."""

import resource
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

_CONNECT_TIMEOUT_S = 5.0
_PART_BYTES = 256 * 1024


@contextmanager
def connected(
    port: int, count: int, *, receive_bytes: int | None = None
) -> Iterator[list[socket.socket]]:
    """That many connections to the service, or as many as the service accepts.

    Args:
        port: Port of the service.
        count: Number of connections to make.
        receive_bytes: Size of each connection's receive buffer; None for the system's default.
    """
    _allow_files(count)
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            each = stack.enter_context(socket.socket())
            if receive_bytes is not None:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            each.settimeout(_CONNECT_TIMEOUT_S)
            try:
                each.connect(("127.0.0.1", port))
            except OSError:
                continue
            each.setblocking(False)
            made.append(each)
        yield made


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))


def flood(sockets: Sequence[socket.socket], contents: Sequence[bytes], *, seconds: float) -> int:
    """Sends each connection its content as fast as the service reads; returns the bytes sent.

    Ends when everything is sent, when the connections are closed, or after `seconds`.
    """
    deadline = time.monotonic() + seconds
    unsent = {each: memoryview(content) for each, content in zip(sockets, contents, strict=True)}
    sent = 0
    poll = select.poll()
    by_number = {each.fileno(): each for each in sockets}
    for number in by_number:
        poll.register(number, select.POLLOUT)
    while unsent and time.monotonic() < deadline:
        for number, _ in poll.poll(100):
            each = by_number[number]
            try:
                count = each.send(unsent[each][:_PART_BYTES])
            except BlockingIOError:
                continue
            except OSError:
                count = len(unsent[each])
            else:
                sent += count
            unsent[each] = unsent[each][count:]
            if not unsent[each]:
                del unsent[each]
                poll.unregister(number)
    return sent


def trickle(
    sockets: Sequence[socket.socket], part: bytes, *, every_s: float, seconds: float
) -> None:
    """Sends this part on every connection again and again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for each in sockets:
            try:
                each.send(part)
            except OSError:
                continue
        time.sleep(every_s)


def closed(sockets: Sequence[socket.socket]) -> int:
    """Number of connections that the service has closed."""
    count = 0
    for each in sockets:
        try:
            while each.recv(65536):
                pass
        except BlockingIOError:
            continue
        except OSError:
            pass
        count += 1
    return count
