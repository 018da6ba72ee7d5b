"""Reads JSON as `json.loads` does, but in short steps.

`json.loads` is one call of C code, and no other thread runs meanwhile, the event loop's neither: 8
MB take it up to 0.4 s. Here no step takes more than a few milliseconds.
"""

import json
from json import JSONDecodeError
from typing import Any

# Characters that are read in one call: it takes a millisecond at most, and most comparisons fit.
_PIECE = 2**14
_SPACE = " \t\n\r"

_decode = json.JSONDecoder().raw_decode


def loads(body: bytes) -> Any:
    """Reads a document.

    Raises:
        JSONDecodeError: It is no JSON.
        UnicodeDecodeError: Its bytes are no text.
        ValueError: A whole number has thousands of digits.
        RecursionError: Lists and objects are nested too deep.
    """
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    found, end = _value(text, _space(text, 0))
    end = _space(text, end)
    if end != len(text):
        raise JSONDecodeError("Extra data", text, end)
    return found


def _space(text: str, at: int) -> int:
    """The place of the first character from `at` on that is no white space."""
    while text[at : at + 1] in _SPACE and at < len(text):
        piece = text[at : at + _PIECE]
        at += len(piece) - len(piece.lstrip(_SPACE))
    return at


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at a place, and the place behind it."""
    piece = text[at : at + _PIECE]
    whole = at + len(piece) == len(text)
    try:
        found, end = _decode(piece)
    except ValueError:
        pass  # wrong, or cut off
    else:
        # A number that ends with the piece may go on behind it.
        if whole or end < len(piece):
            return found, at + end
    if piece[:1] == '"':
        return _string(text, at)
    if piece[:1] == "{":
        return _object(text, at)
    if piece[:1] == "[":
        return _list(text, at)
    return _decode(text, at)


def _list(text: str, at: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _space(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        value, at = _value(text, at)
        found.append(value)
        at = _space(text, at)
        sign = text[at : at + 1]
        if sign == "]":
            return found, at + 1
        if sign != ",":
            raise JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _space(text, at + 1)


def _object(text: str, at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = _space(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        name, at = _value(text, at)
        at = _space(text, at)
        if text[at : at + 1] != ":":
            raise JSONDecodeError("Expecting ':' delimiter", text, at)
        # The last of several fields of one name counts, as everywhere in Python.
        found[name], at = _value(text, _space(text, at + 1))
        at = _space(text, at)
        sign = text[at : at + 1]
        if sign == "}":
            return found, at + 1
        if sign != ",":
            raise JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _space(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    """A string that is longer than a piece, or has no end."""
    parts: list[str] = []
    begin = at + 1
    while len(text) - begin > _PIECE:
        piece = text[begin : begin + _PIECE]
        piece = piece[: _between_escapes(piece)]
        try:
            part, end = _decode(f'"{piece}"')
        except JSONDecodeError as exc:
            raise JSONDecodeError(exc.msg, text, begin + exc.pos - 1) from None
        if end < len(piece) + 2:
            return "".join([*parts, part]), begin + end - 1
        if _is_half(part) and not _is_half(piece):
            # The escape behind it may be the other half of the pair.
            piece, part = piece[:-6], part[:-1]
        parts.append(part)
        begin += len(piece)
    try:
        part, end = _decode(f'"{text[begin:]}')
    except JSONDecodeError as exc:
        unterminated = exc.msg.startswith("Unterminated")
        raise JSONDecodeError(exc.msg, text, at if unterminated else begin + exc.pos - 1) from None
    return "".join([*parts, part]), begin + end - 1


def _between_escapes(piece: str) -> int:
    r"""The last place of a piece of a string that is not within an escape, such as \u00e9."""
    last = piece.rfind("\\", len(piece) - 5)
    if last < 0:
        return len(piece)
    backslashes = last + 1 - len(piece[: last + 1].rstrip("\\"))
    # In pairs they mean themselves; without a partner the last one begins an escape.
    return last if backslashes % 2 else len(piece)


def _is_half(part: str) -> bool:
    """Whether a text ends with the first half of a surrogate pair."""
    return "\ud800" <= part[-1:] <= "\udbff"
