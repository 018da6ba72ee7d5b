"""Makes the calibration store that the settings name, and says which machines can share it."""

from pathlib import Path
from urllib.parse import urlsplit

from app.core.errors import StartupError
from app.ports import CalibrationStore

# Stores that several machines can use. A unix:// socket of Redis serves one machine only.
_SHARED = frozenset({"redis", "rediss"})
_OF_REDIS = _SHARED | {"unix"}
_SQLITE = "sqlite"


def is_shared(url: str) -> bool:
    """Whether several machines can use the store at this URL together."""
    return url.partition("://")[0] in _SHARED


def is_own_file(url: str) -> bool:
    """Whether the store is a file of this service, which no other replica judges with."""
    return url.partition(":")[0] == _SQLITE


def make_store(url: str) -> CalibrationStore:
    """The store for a URL's scheme, not yet open.

    Raises:
        StartupError: No store has this scheme, or the URL is invalid.
    """
    try:
        scheme = urlsplit(url).scheme
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
        "redis://host:port/db, rediss://host:port/db, unix:///path/of/redis.sock or memory://"
    )
