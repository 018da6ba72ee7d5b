"""Calls the synchronous or the asynchronous client, so that one table tests both."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

from scope_judge import AsyncScopeClient, ScopeClient
from tests.unit.clients.planned import Clock

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")


def call(kind: Kind, url: str | None, name: str, *args: Any, **options: Any) -> Any:
    """The result of one call of a new client; all results of a stream, as a list.

    Options that begin with `client_` are those of the client; `clock` makes its time.
    """
    own = {k.removeprefix("client_"): v for k, v in options.items() if k.startswith("client_")}
    clock: Clock | None = options.pop("clock", None)
    given = {k: v for k, v in options.items() if not k.startswith("client_")}
    if kind == "sync":
        with ScopeClient(url, **own) as client:
            if clock is not None:
                client._session.timing, client._sleep = clock.timing, clock.sleep
            found = getattr(client, name)(*args, **given)
            return list(found) if isinstance(found, Iterator) else found
    return asyncio.run(_called(url, name, args, given, clock, own))


async def _called(
    url: str | None, name: str, args: Any, given: Any, clock: Clock | None, own: Any
) -> Any:
    async with AsyncScopeClient(url, **own) as client:
        if clock is not None:
            client._session.timing, client._sleep = clock.timing, clock.sleep_async
        found = getattr(client, name)(*args, **given)
        if hasattr(found, "__aiter__"):
            return [each async for each in found]
        return await found
