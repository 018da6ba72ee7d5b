"""HTTP as bytes on a socket: no client in between that would put anything right."""

import http.client
import socket
import time
from enum import Enum
from typing import NamedTuple

from tests.drills.fuzzing.promises import Answer


class NoAnswer(Enum):
    """How a connection can end without an answer."""

    CLOSED = "closed"
    HANG = "hang"


class Ended(NamedTuple):
    """How one exchange ended.

    Args:
        answer: What came, or why nothing did.
        seconds: From the first byte sent to the last one received.
    """

    answer: Answer | NoAnswer
    seconds: float


class Connection:
    """One connection for one request.

    Args:
        port: Of the service on this machine.
        timeout_s: A service that is silent for longer hangs.
    """

    def __init__(self, port: int, *, timeout_s: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._began = time.perf_counter()

    def send(self, content: bytes, *, and_no_more: bool = False) -> None:
        """Sends; a service that has answered already need not read the rest."""
        try:
            self._socket.sendall(content)
            if and_no_more:
                self._socket.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except OSError as exc:
            # macOS and Linux differ in what a shutdown after a reset says.
            if isinstance(exc, TimeoutError):
                raise

    def end(self, method: str) -> Ended:
        """Reads the answer to the method that was sent, and closes."""
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
    """Writes a request as it is told to, right or wrong.

    Args:
        method: Whatever stands first.
        target: Whatever stands second.
        body: Whatever stands behind the headers.
        headers: After the ones that a request needs.
        length: Of Content-Length; that of the body if left out, none where it is empty.
    """
    announced = str(len(body)).encode() if length is None else length
    lines = [method.encode("latin-1") + b" " + target + b" HTTP/1.1", b"Host: localhost"]
    lines += [b"Connection: close"]
    lines += [b"Content-Length: " + announced] if announced else []
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
