"""Requests without a client: a test decides when parts of a body come, and when nobody waits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI

from tests.unit.api.keyring import key_of

Then = Callable[[], Awaitable[object]]


async def stay() -> None:
    """Waits for the answer, however long it takes."""
    await asyncio.Event().wait()


def never_read() -> Awaitable[object]:
    """Fails a test in which a body must not be read."""
    raise AssertionError("the body was asked for")


async def talk(
    app: FastAPI,
    path: str,
    *parts: bytes,
    then: Then = stay,
    unfinished: bool = False,
    pause_s: float = 0.0,
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = (),
    key: str | None = None,
    state: dict[str, Any] | None = None,
) -> list[Any]:
    """Sends a request with these parts of a body; returns the messages of the application.

    `then` is called when all parts were read, and the client leaves after it; `unfinished` if more
    parts were to come. There is a pause before each part but the first.
    """
    waiting, sent = list(parts), list[Any]()
    bearer = [] if key is None else [(b"authorization", f"Bearer {key_of(key)}".encode())]

    async def receive() -> Any:
        if not waiting:
            await then()
            return {"type": "http.disconnect"}
        if len(waiting) < len(parts):
            await asyncio.sleep(pause_s)
        part = waiting.pop(0)
        more = bool(waiting) or unfinished
        return {"type": "http.request", "body": part, "more_body": more}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), *bearer, *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "app": app,
        "state": state or {},
    }
    await app(scope, receive, send)
    return sent
