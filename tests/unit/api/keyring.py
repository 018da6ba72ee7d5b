"""Key files for tests, and the header that a caller sends."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from app.api.keys import hash_of


def key_of(name: str) -> str:
    """The key of a name; a real key is random."""
    return f"scope_key-of-{name}"


def entry(
    name: str, roles: Sequence[str] = ("judge",), calibrations: Sequence[str] | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "sha256": hash_of(key_of(name).encode()).hex(),
        "roles": list(roles),
        "calibrations": None if calibrations is None else list(calibrations),
        "created": "2026-11-21T12:00:00Z",
    }


def write_keys(path: Path, *entries: dict[str, Any]) -> Path:
    """Writes a key file with these entries in one atomic step."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"keys": entries}))
    os.replace(draft, path)
    return path


def header_of(name: str) -> dict[str, str]:
    """The header with the key of a name."""
    return {"Authorization": f"Bearer {key_of(name)}"}


async def response_to(
    client: httpx.AsyncClient, method: str, path: str, name: str | None = None
) -> httpx.Response:
    """The answer to a request without a body, with the key of `name` if one is given."""
    return await client.request(method, path, headers=None if name is None else header_of(name))
