"""A corpus of bad inputs: each was found by fuzzing, or is known from other services.

`table.json` has one entry for each: its route, its content and the expected status and code. The
content is a file in this folder, or `made`: text before, repeated text, number of repetitions,
text after. `http` is a whole request as bytes, which only a socket can send; "closed" and "no_http"
are the outcomes of those that uvicorn does not pass on.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent


class Case(NamedTuple):
    """One bad input: its content is the body, or the `whole` request.

    The expected status is 0 if the connection is closed; the code is "ok", "closed" or "no_http" if
    there is none.
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
    """All cases of the table."""
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
