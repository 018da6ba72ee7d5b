"""Parses JSON like `json.loads`, but in steps of at most a few milliseconds.

`json.loads` is one call of C code that never releases the interpreter lock. It takes up to 0.4 s
for 8 MB, even in a thread, and stops the event loop meanwhile.
"""

import json
from json import JSONDecodeError
from typing import Any

# Characters that are parsed in one call. It takes at most 1 ms, and most comparisons fit.
_PIECE = 2**14
_SPACE = " \t\n\r"

_decode = json.JSONDecoder().raw_decode


def loads(body: bytes) -> Any:
    """Parses a document.

    Raises:
        JSONDecodeError: The text is not valid JSON.
        UnicodeDecodeError: The bytes are not valid text.
        ValueError: An integer has thousands of digits.
        RecursionError: Lists and objects are nested too deep.
    """
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    found, end = _value(text, _space(text, 0))
    end = _space(text, end)
    if end != len(text):
        raise JSONDecodeError("Extra data", text, end)
    return found


def _space(text: str, at: int) -> int:
    """The index of the first character from `at` on that is not white space."""
    while text[at : at + 1] in _SPACE and at < len(text):
        piece = text[at : at + _PIECE]
        at += len(piece) - len(piece.lstrip(_SPACE))
    return at


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and the index after it."""
    piece = text[at : at + _PIECE]
    whole = at + len(piece) == len(text)
    try:
        found, end = _decode(piece)
    except ValueError:
        pass  # invalid, or longer than the piece
    else:
        # A number at the end of the piece may continue in the next one.
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
        # The last one of several fields with the same name counts, as in `json.loads`.
        found[name], at = _value(text, _space(text, at + 1))
        at = _space(text, at)
        sign = text[at : at + 1]
        if sign == "}":
            return found, at + 1
        if sign != ",":
            raise JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _space(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    """A string that is longer than a piece or not terminated, and the index after it."""
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
            # The next escape may be the second half of the surrogate pair.
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
    r"""The last index of a piece of a string that is not inside an escape such as \u00e9."""
    last = piece.rfind("\\", len(piece) - 5)
    if last < 0:
        return len(piece)
    backslashes = last + 1 - len(piece[: last + 1].rstrip("\\"))
    # Two backslashes are an escaped backslash; an odd one begins an escape.
    return last if backslashes % 2 else len(piece)


def _is_half(part: str) -> bool:
    """Whether a text ends with the first half of a surrogate pair."""
    return "\ud800" <= part[-1:] <= "\udbff"
