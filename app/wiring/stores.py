"""Makes the calibration store that the settings name."""

from pathlib import Path
from urllib.parse import urlsplit

from app.core.errors import StartupError
from app.ports import CalibrationStore


def make_store(url: str) -> CalibrationStore:
    """The store that a URL's scheme names, not yet open.

    Raises:
        StartupError: No store has this scheme, or it is no URL.
    """
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        # Without the reason: it repeats a part of the URL, which may hold a password.
        raise StartupError("SCOPE_STORE_URL is no URL that can be read") from None
    if scheme in ("redis", "rediss", "unix"):
        from app.stores.redis import RedisStore

        return RedisStore(url)
    if scheme == "sqlite":
        from app.stores.sqlite import SqliteStore

        path = url.removeprefix("sqlite:///")
        if path in ("", url):
            raise StartupError(
                "SCOPE_STORE_URL: write sqlite:///file.db or sqlite:////path/file.db"
            )
        return SqliteStore(Path(path))
    if scheme == "memory":
        from app.stores.memory import MemoryStore

        return MemoryStore()
    raise StartupError(
        f"SCOPE_STORE_URL has the scheme {scheme!r}: give sqlite:///path, redis://host:port/db or "
        "memory://"
    )
