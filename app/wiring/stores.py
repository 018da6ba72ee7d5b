"""Makes the calibration store that the settings name."""

from pathlib import Path
from urllib.parse import urlsplit

from app.core.errors import StartupError
from app.ports import CalibrationStore


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
    if scheme in ("redis", "rediss", "unix"):
        from app.stores.redis import RedisStore

        return RedisStore(url)
    if scheme == "sqlite":
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
        "redis://host:port/db or memory://"
    )
