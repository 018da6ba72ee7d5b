"""Makes the store that the settings name, and says which machines can share it."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.core.errors import StartupError
from app.ports import Store

# Stores that several machines can use. A unix:// socket of Redis serves one machine only.
_SHARED = frozenset({"redis", "rediss", "redis+cluster", "rediss+cluster"})
_OF_REDIS = _SHARED | {"unix"}
_SQLITE = "sqlite"


def own_store(judge: str) -> Path:
    """The file of a judge in the user's data folder, where the settings name no store.

    Each judge has its own file, because each needs a set `default` of its own.
    """
    return _data_folder() / "scope-judge" / (re.sub(r"[^A-Za-z0-9._-]+", "--", judge) + ".db")


def _data_folder() -> Path:
    """The folder of the user's data, as in the XDG Base Directory Specification."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The specification says that relative paths must be ignored.
    if named.is_absolute():
        return named
    try:
        return Path.home() / ".local" / "share"
    except RuntimeError:
        raise StartupError("there is no home folder: set SCOPE_STORE_URL") from None


def is_shared(url: str) -> bool:
    """Whether several machines can use the store at this URL together."""
    return url.partition("://")[0] in _SHARED


def make_store(url: str) -> Store:
    """The store for a URL's scheme, not yet open."""
    try:
        parts = urlsplit(url)
        # A port out of range is noticed only where it is read.
        scheme, _ = parts.scheme, parts.port
    except ValueError:
        # The reason repeats a part of the URL, which may contain a password.
        raise StartupError("SCOPE_STORE_URL is not a valid URL") from None
    if scheme in _OF_REDIS:
        from app.stores.redis import RedisStore

        return RedisStore(url)
    if scheme == _SQLITE:
        from app.stores.sqlite import SqliteStore

        path = url.removeprefix("sqlite:///")
        if path in ("", url):
            raise StartupError(
                "SCOPE_STORE_URL needs a path: sqlite:///file.db or sqlite:////path/file.db"
            )
        return SqliteStore(Path(path))
    if scheme == "memory":
        from app.stores.memory import MemoryStore

        return MemoryStore()
    raise StartupError(
        f"SCOPE_STORE_URL has the unknown scheme {scheme!r}: use sqlite:///path, "
        "redis://host:port/db, rediss://host:port/db, redis+cluster://host:port, "
        "unix:///path/of/redis.sock or memory://"
    )


@asynccontextmanager
async def opened(url: str, *, must_exist: bool) -> AsyncIterator[Store]:
    """Opens the store of a service for another process, and closes it.

    Args:
        must_exist: Refuse a SQLite file that does not exist, instead of making it.
    """
    store = make_store(url)
    if url.startswith("memory:"):
        raise StartupError("memory:// is within one process, and no other one can use it")
    if must_exist:
        _check_file(url)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def _check_file(url: str) -> None:
    """Raises StartupError if the store is a file that does not exist."""
    file = Path(url.removeprefix("sqlite:///"))
    if url.startswith(f"{_SQLITE}:") and not file.exists():
        raise StartupError(f"there is no file {file}, which SCOPE_STORE_URL names")
