"""Labelled pairs in a user's JSONL file."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.core.comparison import Turn
from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.rows import TIE, LeftOut, RawPair, digest_of, user_turn


def file_pairs(path: Path) -> Iterator[RawPair | LeftOut]:
    """Reads the lines of a file; `load_benchmark` describes their format.

    Raises:
        InvalidRequestError: The file cannot be read, or a line has another format. The message
            names the file and the line.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as lines:
            for number, text in enumerate(lines, start=1):
                if text.strip():
                    yield _line_pair(text, number, f"{path}, line {number}")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as exc:
        raise InvalidRequestError(f"{path} cannot be read: {exc}") from None


def _line_pair(text: str, number: int, place: str) -> RawPair | LeftOut:
    row = _json_object(text, place)
    for name in ("question", "response_a", "response_b", "label"):
        if name not in row:
            raise InvalidRequestError(
                f"{place}: {name} is missing; a line needs question, response_a, response_b, label"
            )
        if row[name] is None:
            return LeftOut(f"no {name}")
    if row["label"] not in ("A", "B", TIE):
        raise InvalidRequestError(f'{place}: label must be "A", "B" or "tie"')
    if not _is_encodable(row):
        return LeftOut("half of a surrogate pair")
    try:
        turns = _turns(row["question"])
        a, b = (_texts(row[name]) for name in ("response_a", "response_b"))
    except (KeyError, TypeError):
        raise InvalidRequestError(
            f"{place}: question must be a text or a list of turns with role and content, "
            "response_a and response_b texts or lists of texts"
        ) from None
    pair_id, group = (None if row.get(key) is None else str(row[key]) for key in ("id", "group"))
    return RawPair(
        pair_id or f"line-{number}", group or digest_of(turns), turns, a, b, row["label"]
    )


def _json_object(text: str, place: str) -> Mapping[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise InvalidRequestError(f"{place}: not a JSON object; each line must be one")
    return row


def _is_encodable(row: Mapping[str, Any]) -> bool:
    """Whether UTF-8 can encode all texts: JSON can carry a lone surrogate."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _turns(value: Any) -> tuple[Turn, ...]:
    if isinstance(value, str):
        return user_turn(value)
    turns = tuple(Turn(turn["role"], *_texts(turn["content"])) for turn in value)
    if not all(turn.role in ("user", "assistant", "system") for turn in turns):
        raise TypeError
    return turns


def _texts(value: Any) -> tuple[str, ...]:
    """One text or several; null becomes blank, and the row is left out."""
    texts = value if isinstance(value, list) else [value]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError
    return tuple(text or "" for text in texts)
