"""Texts from outside as they may be shown on a terminal, in a log or on a page."""

import re

# Control characters, which steer a terminal, signs that change the order of the text around them,
# further line ends, and lone surrogates, which cannot be encoded.
_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_STEERING}]")
_IN_LINE = re.compile(f"[{_STEERING}\n\t]")


def printable(text: str) -> str:
    r"""The text with escapes such as `\x1b` for steering characters; line ends and tabs stay."""
    return _IN_TEXT.sub(_escape, text)


def printable_line(text: str) -> str:
    """Like `printable`, with escapes for line ends and tabs, too."""
    return _IN_LINE.sub(_escape, text)


def printable_json(text: str) -> str:
    r"""JSON with the same value, whose strings have escapes such as `\u001b`."""
    return _IN_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def encodable(text: str) -> str:
    """The text with escapes for lone surrogates, which no encoding has."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def printable_value(value: object) -> object:
    """Like `printable` for a text, also of a subclass; every other value as it is."""
    if isinstance(value, str) and _IN_TEXT.search(value):
        return type(value)(printable(value))
    return value


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
