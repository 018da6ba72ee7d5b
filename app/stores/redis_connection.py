"""A connection to one Redis server: short calls on the event loop, large ones in threads.

redis-py packs and parses in Python, which takes seconds for a set of 300,000 examples. So large
values go through a separate client in threads.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

from app.core.errors import StartupError, StoreCorruptError, StoreUnavailableError
from app.ports import LARGEST_NUMBER

T = TypeVar("T")

NAMES_KEY = "scope:calibrations"

CONNECT_TIMEOUT_S = 2
ANSWER_TIMEOUT_S = 5
# A write of 300,000 examples takes 3 s on a loaded machine.
BULK_TIMEOUT_S = 20
# Largest number of whole sets that are read or written at once; each takes memory.
_THREADS = 4
# An idle connection is pinged before use, because a firewall may have dropped it silently.
HEALTH_CHECK_INTERVAL_S = 15
# redis-py passes on two foreign errors: the RuntimeError of uvloop for a connection that was reset
# since its last use, and the ValueError for a reply that is not from Redis. Both close the
# connection.
_VENDOR_ERRORS = (redis.exceptions.RedisError, OSError, RuntimeError, ValueError)


class RedisConnection:
    """Clients of one server, whose errors are translated into errors of the store.

    Args:
        url: URL with the scheme `redis://`, `rediss://` or `unix://`. Its query can have options of
            redis-py.

    Raises:
        StartupError: The URL is malformed.
    """

    def __init__(self, url: str) -> None:
        try:
            self._place = _place(url)
            options: dict[str, Any] = {
                "decode_responses": True,
                "socket_connect_timeout": CONNECT_TIMEOUT_S,
                "health_check_interval": HEALTH_CHECK_INTERVAL_S,
                # With RESP3, redis-py 8 does not check whether an idle connection was closed, so
                # the first call after a restart of the server fails.
                "protocol": 2,
            }
            self._client = redis.asyncio.Redis.from_url(
                url,
                socket_timeout=ANSWER_TIMEOUT_S,
                retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
                **options,
            )
            self._bulk = redis.Redis.from_url(
                url,
                socket_timeout=BULK_TIMEOUT_S,
                retry=redis.retry.Retry(NoBackoff(), 0),
                **options,
            )
        except ValueError:
            # Without the cause, because its message can contain the password from the URL.
            raise StartupError(
                "SCOPE_STORE_URL is not a Redis URL. Write it as redis://:password@host:6379/0,"
                " and percent-encode the characters / ? # of the password."
            ) from None
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Connects to the server.

        Raises:
            StoreUnavailableError: Redis does not answer.
        """
        await self.ping()

    async def close(self) -> None:
        """Closes all connections after running calls; safe to call twice or without `open`."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, cancel_futures=True)
        with self._translated():
            self._bulk.close()
            await self._client.aclose()

    async def ping(self) -> None:
        """Returns if the keys can be read now."""
        # Not PING, because Redis answers it even if the user may not read the keys.
        with self._translated():
            await self._client.exists(NAMES_KEY)

    async def _in_thread(self, work: Callable[[redis.Redis], T]) -> T:
        """Runs `work` in a thread of the store, which finishes it even if the call is cancelled."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="redis-store")
        with self._translated():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._bulk)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates errors of redis-py into errors of the store, without the original messages."""
        try:
            yield
        except UnicodeDecodeError as exc:
            raise StoreCorruptError(
                f"Redis at {self._place} holds bytes of another program under scope:."
                " Stop that program, and restore Redis from a backup."
            ) from exc
        except _VENDOR_ERRORS as exc:
            if str(exc).startswith("WRONGTYPE "):
                raise StoreCorruptError(
                    f"A key of this service in Redis at {self._place} has another type. Another"
                    " program writes keys under scope:; stop it, and restore Redis from a backup."
                ) from exc
            raise StoreUnavailableError(
                f"Redis at {self._place} does not answer, or refuses ({type(exc).__name__}). Check"
                " that Redis runs, accepts writes and has free memory, and that SCOPE_STORE_URL has"
                " the right password. A write in progress was made completely or not at all."
            ) from exc


def _place(url: str) -> str:
    """Returns the address in a Redis URL, without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    database = parts.path.removeprefix("/")
    if database and not (database.isascii() and database.isdecimal()):
        # redis-py would silently use database 0, which may belong to another program.
        raise StartupError(
            "SCOPE_STORE_URL: the database after the last / must be a number"
        ) from None
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def is_number(text: str) -> bool:
    """Whether a text is a number of a version or position as this service writes it."""
    decimal = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_NUMBER))
    return decimal and text[0] != "0" and int(text) <= LARGEST_NUMBER
