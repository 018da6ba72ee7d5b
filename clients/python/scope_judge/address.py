"""The address of a service and the key for it, from arguments or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

DEFAULT_URL = "http://127.0.0.1:8000"
URL_VARIABLE = "SCOPE_URL"
KEY_VARIABLE = "SCOPE_API_KEY"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the service and its key.

    Args:
        url: URL of the service, without a user and a password.
        key: The key; None to send none. No repr shows it.
    """

    url: str
    key: str | None = field(repr=False)

    @classmethod
    def of(
        cls, url: str | None, api_key: str | None, environment: Mapping[str, str] = os.environ
    ) -> "Address":
        """The address from the arguments, or else from SCOPE_URL and SCOPE_API_KEY.

        A password in the URL (`http://x:KEY@host`) is the key, unless another one is given.
        """
        given = url or environment.get(URL_VARIABLE, "").strip() or DEFAULT_URL
        parts = urlsplit(given)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not host or not _has_sound_port(parts):
            shown = host + parts.path if parts.netloc else given.rpartition("@")[2]
            raise ValueError(
                f"{shown!r} is not the address of a service: write it with http:// or https://, "
                f"such as {DEFAULT_URL}"
            )
        if api_key is None:
            api_key = unquote(parts.password or "") or environment.get(KEY_VARIABLE, "")
        return cls(urlunsplit((parts.scheme, host, parts.path, "", "")), _key(api_key.strip()))


def _has_sound_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _key(text: str) -> str | None:
    if not text.isascii() or not text.isprintable():
        # Not `from` anything, and without the text: it may be most of a real key.
        raise ValueError(
            "the key contains characters that a key cannot have: copy the key again into "
            f"{KEY_VARIABLE} or api_key"
        )
    return text or None
