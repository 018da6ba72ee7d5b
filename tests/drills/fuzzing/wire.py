"""HTTP as bytes on a socket, without a client that would correct anything."""

import http.client
import socket
import time
from enum import Enum
from typing import NamedTuple

from tests.drills.fuzzing.promises import Answer


class NoAnswer(Enum):
    """The reason why a connection ended without an answer."""

    CLOSED = "closed"
    HANG = "hang"


class Ended(NamedTuple):
    """The end of one exchange.

    Args:
        answer: The answer, or the reason why there was none.
        seconds: Time from the first byte sent to the last one received.
    """

    answer: Answer | NoAnswer
    seconds: float


class Connection:
    """A connection for one request.

    Args:
        port: Port of the service on this machine.
        timeout_s: Silence after which a service counts as hung.
    """

    def __init__(self, port: int, *, timeout_s: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._began = time.perf_counter()

    def send(self, content: bytes, *, and_no_more: bool = False) -> None:
        """Sends bytes; a service that has already answered need not read the rest."""
        try:
            self._socket.sendall(content)
            if and_no_more:
                self._socket.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except OSError as exc:
            # macOS and Linux raise different errors for a shutdown after a reset.
            if isinstance(exc, TimeoutError):
                raise

    def end(self, method: str) -> Ended:
        """Reads the answer to a request with this method, and closes the connection."""
        with self._socket:
            answer = self._answer(method)
        return Ended(answer, time.perf_counter() - self._began)

    def _answer(self, method: str) -> Answer | NoAnswer:
        response = http.client.HTTPResponse(self._socket, method=method)
        try:
            response.begin()
            body = response.read()
        except TimeoutError:
            return NoAnswer.HANG
        except (ConnectionError, http.client.HTTPException):
            return NoAnswer.CLOSED
        finally:
            response.close()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, body)


def request_bytes(
    method: str,
    target: bytes,
    body: bytes = b"",
    *,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    length: bytes | None = None,
) -> bytes:
    """Formats a request from any parts, valid or not.

    Args:
        method: First word of the request line.
        target: Second word of the request line.
        body: Bytes after the headers.
        headers: Headers after the required ones.
        length: Value of Content-Length; None for the body's length, or no header if it is empty.
    """
    announced = str(len(body)).encode() if length is None else length
    lines = [method.encode("latin-1") + b" " + target + b" HTTP/1.1", b"Host: localhost"]
    lines += [b"Connection: close"]
    lines += [b"Content-Length: " + announced] if announced else []
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
