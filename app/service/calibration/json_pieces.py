"""Writes and reads large JSON in pieces, so that other threads can run in between.

One call of `json` blocks all other threads until it ends: half a second for the undo of a set of
300,000 examples. The pieces together are the same text that one call writes.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

# Number of members that one call of `json` writes.
_PIECE = 1024
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def object_pieces(members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yields the text of an object with these members, without spaces."""
    left, sign = iter(members), "{"
    while piece := dict(islice(left, _PIECE)):
        yield sign
        yield json.dumps(piece, separators=(",", ":"))[1:-1]
        sign = ","
    yield "}" if sign == "," else "{}"


def array_pieces(elements: Iterable[Any]) -> Iterator[str]:
    """Yields the text of an array of these elements, without spaces."""
    left, sign = iter(elements), "["
    while piece := list(islice(left, _PIECE)):
        yield sign
        yield json.dumps(piece, separators=(",", ":"))[1:-1]
        sign = ","
    yield "]" if sign == "," else "[]"


class JsonReader:
    """Reads a JSON text from its beginning to its end.

    Every method raises ValueError if the text does not continue with the requested kind of value.

    Args:
        text: The JSON text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Any:
        """Reads the next value."""
        found, self._at = _DECODER.raw_decode(self._text, self._after_space())
        return found

    def members(self) -> Iterator[str]:
        """Yields the keys of the next object; the caller reads each value before the next key."""
        self._expect("{")
        if self._takes("}"):
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise ValueError("not a key")
            self._expect(":")
            yield key
            if self._takes("}"):
                return
            self._expect(",")

    def elements(self) -> Iterator[Any]:
        """Yields the elements of the next array."""
        self._expect("[")
        if self._takes("]"):
            return
        while True:
            yield self.value()
            if self._takes("]"):
                return
            self._expect(",")

    def end(self) -> None:
        """Checks that the text ends here."""
        if self._after_space() != len(self._text):
            raise ValueError("more text than one value")

    def _after_space(self) -> int:
        space = _SPACE.match(self._text, self._at)
        return space.end() if space else self._at

    def _takes(self, sign: str) -> bool:
        at = self._after_space()
        if not self._text.startswith(sign, at):
            return False
        self._at = at + 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise ValueError(f"not a {sign}")
