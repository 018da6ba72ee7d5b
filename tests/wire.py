"""HTTP as bytes on a socket, without a client that would correct anything, and what errors keep."""

import http.client
import json
import socket
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from app.api.problems import STATUS

STATUS_OF_CODE = {error.code: status for error, status in STATUS.items()}
# An error describes the fault; it never repeats the request.
LONGEST_PROBLEM_BYTES = 4096
# Uvicorn's own answer to bytes that are not a request; it has no route and is not a problem.
NO_HTTP = (400, b"Invalid HTTP request received.")


class Answer(NamedTuple):
    """A received answer; its headers have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoAnswer(Enum):
    """The reason why a connection ended without an answer."""

    CLOSED = "closed"
    HANG = "hang"


def exchange(
    port: int, content: bytes, method: str, *, timeout_s: float, and_no_more: bool = False
) -> tuple[Answer | NoAnswer, float]:
    """Sends bytes on a connection of their own; returns the answer and its seconds.

    Args:
        port: Port of the service on this machine.
        content: The bytes to send; a service that has already answered need not read all of them.
        method: The request's method, by which an answer has a body.
        timeout_s: Silence after which a service counts as hung.
        and_no_more: Whether the sending side is closed, so that nobody waits for a rest.
    """
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        try:
            connection.sendall(content)
            if and_no_more:
                connection.shutdown(socket.SHUT_WR)
        except TimeoutError:
            raise
        except OSError:
            pass
        response = http.client.HTTPResponse(connection, method=method)
        answer: Answer | NoAnswer
        try:
            response.begin()
            body = response.read()
            headers = {name.lower(): value for name, value in response.getheaders()}
            answer = Answer(response.status, headers, body)
        except TimeoutError:
            answer = NoAnswer.HANG
        except (ConnectionError, http.client.HTTPException):
            answer = NoAnswer.CLOSED
        finally:
            response.close()
    return answer, time.perf_counter() - began


def request_bytes(
    method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    """A request; headers without Transfer-Encoding get the body's length."""
    held = {"Host": "localhost", "Connection": "close", **(headers or {})}
    if body and "Transfer-Encoding" not in held:
        held["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in held.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def strict_json(body: bytes) -> Any:
    """Parses JSON strictly: UTF-8, and neither NaN nor Infinity.

    Raises:
        ValueError: The body is not JSON.
    """

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is not JSON")

    return json.loads(body.decode("utf-8"), parse_constant=refuse)


def problem_faults(answer: Answer) -> list[str]:
    """The differences between an error and RFC 9457 or the table of codes."""
    kind = answer.headers.get("content-type")
    if kind != "application/problem+json":
        return [f"an error of content type {kind!r}"]
    if len(answer.body) > LONGEST_PROBLEM_BYTES:
        return [f"an error of {len(answer.body)} bytes"]
    try:
        body = strict_json(answer.body)
    except ValueError as exc:
        return [f"a problem that is not JSON: {exc}"]
    code = body.get("code")
    if STATUS_OF_CODE.get(code) != answer.status or body.get("status") != answer.status:
        return [f"code {code!r} and status {body.get('status')} with HTTP {answer.status}"]
    if body.get("type") != f"urn:scope-judge:problem:{code}":
        return [f"type {body.get('type')!r} for {code!r}"]
    if not (body.get("title") and body.get("detail")):
        return ["a problem without a detail"]
    retried = answer.status in (429, 503, 504)
    if retried != ("retry-after" in answer.headers):
        return [f"Retry-After {'is missing' if retried else 'is there'} with {answer.status}"]
    if (answer.status == 405) != bool(answer.headers.get("allow")):
        return [f"Allow is {answer.headers.get('allow')!r} with {answer.status}"]
    return []
