"""The files of the page, read once, with the headers that keep it to itself."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Texts of users are on this page, so nothing but its own files can run, and nothing can be sent to
# another host.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "worker-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # The browser asks each time, and gets 304 until an upgrade changes the file.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeskFile:
    """A file of the page.

    Args:
        content: Its bytes.
        packed: The same in gzip.
        media_type: Its media type.
        etag: A quoted digest of its content.
    """

    content: bytes
    packed: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file."""
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:32]
        return cls(
            content=content,
            packed=gzip.compress(content, mtime=0),
            media_type=_MEDIA_TYPES[path.suffix],
            # Weak, because both forms have it.
            etag=f'W/"{digest}"',
        )

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each answer with this file."""
        return {**_HEADERS, "ETag": self.etag, "Vary": "Accept-Encoding"}


def read_files() -> dict[str, DeskFile]:
    """Reads all files that a browser may have, by their paths below /desk."""
    return {
        path.relative_to(_FOLDER).as_posix(): DeskFile.read(path)
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _MEDIA_TYPES
    }
