"""JSON of any size, written and read in pieces.

One call of `json` lets no other thread run until it ends, which takes half a second for the undo of
a set of 300,000 examples. The text is the same as that of one call.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

# Members that one call writes.
_PIECE = 1024
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def object_pieces(members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """An object with these members, without spaces."""
    left, sign = iter(members), "{"
    while piece := dict(islice(left, _PIECE)):
        yield sign
        yield json.dumps(piece, separators=(",", ":"))[1:-1]
        sign = ","
    yield "}" if sign == "," else "{}"


def array_pieces(elements: Iterable[Any]) -> Iterator[str]:
    """An array of these elements, without spaces."""
    left, sign = iter(elements), "["
    while piece := list(islice(left, _PIECE)):
        yield sign
        yield json.dumps(piece, separators=(",", ":"))[1:-1]
        sign = ","
    yield "]" if sign == "," else "[]"


class JsonReader:
    """Reads a JSON text from its beginning to its end.

    Every method raises ValueError where the text is something else than what is asked for.

    Args:
        text: To read.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Any:
        """The value that comes next."""
        found, self._at = _DECODER.raw_decode(self._text, self._after_space())
        return found

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; each one's value is read before the next key."""
        self._expect("{")
        if self._takes("}"):
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise ValueError("no key")
            self._expect(":")
            yield key
            if self._takes("}"):
                return
            self._expect(",")

    def elements(self) -> Iterator[Any]:
        """The elements of the array that comes next."""
        self._expect("[")
        if self._takes("]"):
            return
        while True:
            yield self.value()
            if self._takes("]"):
                return
            self._expect(",")

    def end(self) -> None:
        """Nothing comes any more."""
        if self._after_space() != len(self._text):
            raise ValueError("more text")

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
            raise ValueError(f"no {sign}")
