"""Bad inputs that are kept: each was found by fuzzing, or is known from other services.

`table.json` has one entry for each: where it is sent, what it is (a file in this folder, or `made`:
text before, text, how many times, text after), and the status and code that answer it. `http` is a
whole request as bytes, which only a socket can send; "closed" and "no_http" end those that uvicorn
does not hand on.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent


class Case(NamedTuple):
    """One bad input.

    Args:
        name: What is wrong with it.
        method: And
        path: it is sent with.
        content: The body, or the whole request where `whole` is set.
        content_type: Of the body.
        whole: Whether `content` is more than a body.
        status: Of the answer; 0 where the connection is closed.
        code: Of the problem; "ok", "closed" or "no_http" where there is none.
    """

    name: str
    method: str
    path: str
    content: bytes
    content_type: str
    whole: bool
    status: int
    code: str


def cases() -> list[Case]:
    """The whole table."""
    table = json.loads((FOLDER / "table.json").read_text(encoding="utf-8"))
    return [_case(entry) for entry in table]


def _case(entry: dict[str, Any]) -> Case:
    method, _, path = entry["request"].partition(" ")
    if "made" in entry:
        before, again, times, after = entry["made"]
        content = (before + again * times + after).encode()
    else:
        file = entry.get("file")
        content = b"" if file is None else (FOLDER / file).read_bytes()
    return Case(
        entry["name"],
        method,
        path,
        content,
        entry.get("content_type", "application/json"),
        entry.get("file", "").endswith(".http"),
        entry["status"],
        entry["code"],
    )
