"""The screen that shows one pair to a person, blind: two answers, and nothing of the judge."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from app.core.comparison import Label, Side

# Columns from which the answers are beside each other.
_BESIDE = 72
_BETWEEN = " | "
_KEYS = "left or 1: left is better   right or 2: right is better   t or =: tie"
_MORE_KEYS = "s: skip   u: undo   q: quit   up, down, space, b: scroll"
# Signs that change the order in which a terminal shows the text around them.
_ORDER_SIGNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_LINE_ENDS = str.maketrans(
    {"\r": "\n", "\v": "\n", "\f": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n"}
)
# Wraps text; it never writes.
_WRAPPER = Console(width=_BESIDE, color_system=None)


class Size(NamedTuple):
    """The size of a terminal in cells."""

    columns: int
    lines: int


class PairText(NamedTuple):
    """The texts of a pair in the order in which they are shown."""

    question: str
    left: str
    right: str


def shown_pair(fields: Mapping[str, Any], left: Side) -> PairText:
    """The texts of a pair, with the given response on the left.

    Args:
        fields: question, response_a and response_b, as in POST /judge.
        left: The response that is shown on the left.
    """
    a, b = (_response(fields[name]) for name in ("response_a", "response_b"))
    first, second = (a, b) if left == "A" else (b, a)
    return PairText(_question(fields["question"]), first, second)


def label_of(choice: str, left: Side) -> Label:
    """The label of a choice: "left", "right" or "tie".

    Args:
        choice: The person's choice.
        left: The response that was shown on the left.
    """
    if choice == "tie":
        return "tie"
    return left if choice == "left" else ("B" if left == "A" else "A")


def harmless(text: str) -> str:
    """A text whose control characters are visible escapes, so that it cannot steer a terminal.

    Line ends and tabs stay. Signs that change the order of the text become escapes, too.
    """
    lines = text.replace("\r\n", "\n").translate(_LINE_ENDS)
    return "".join(char if _is_harmless(char) else _escape(char) for char in lines)


def pair_lines(pair: PairText, columns: int) -> list[str]:
    """The lines of a pair, none wider than the columns.

    The answers are beside each other, or below each other on a narrow terminal.
    """
    lines = [_heading("QUESTION", columns), *_wrapped(pair.question, columns), ""]
    if columns < _BESIDE:
        for name, text in (("LEFT", pair.left), ("RIGHT", pair.right)):
            lines += [_heading(name, columns), *_wrapped(text, columns), ""]
        return lines
    width = (columns - len(_BETWEEN)) // 2
    left = [_heading("LEFT", width), *_wrapped(pair.left, width)]
    right = [_heading("RIGHT", width), *_wrapped(pair.right, width)]
    height = max(len(left), len(right))
    for each in (left, right):
        each += [""] * (height - len(each))
    both = zip(left, right, strict=True)
    return lines + [f"{set_cell_size(one, width)}{_BETWEEN}{other}".rstrip() for one, other in both]


def screen_lines(pair: Sequence[str], head: str, size: Size, first: int) -> list[str]:
    """The lines of the whole screen: a head, a part of the pair, and the keys.

    Args:
        pair: All lines of the pair.
        head: A line above it.
        size: Size of the terminal.
        first: Index of the first line of the pair to show.
    """
    foot = [line for keys in (_KEYS, _MORE_KEYS) for line in _wrapped(keys, size.columns)]
    room = room_for_pair(size)
    part = list(pair[first : first + room])
    part += [""] * (room - len(part))
    return [
        set_cell_size(head, size.columns).rstrip(),
        *part,
        _heading(_place(len(pair), first, room), size.columns),
        *foot,
    ][: size.lines]


def room_for_pair(size: Size) -> int:
    """Number of lines for the pair on a terminal of this size, at least one."""
    foot = sum(len(_wrapped(keys, size.columns)) for keys in (_KEYS, _MORE_KEYS))
    # The head and the line above the keys. The last line stays free, so that nothing scrolls.
    return max(1, size.lines - foot - 3)


def _place(total: int, first: int, room: int) -> str:
    if total <= room:
        return ""
    last = min(total, first + room)
    more = "more below" if last < total else "the end"
    return f"lines {first + 1}-{last} of {total}, {more}"


def _heading(name: str, columns: int) -> str:
    return f"--- {name} ".ljust(columns, "-")[:columns] if name else "-" * columns


def _question(question: Any) -> str:
    if isinstance(question, str):
        return question
    return "\n\n".join(f"[{turn['role']}]\n{turn['content']}" for turn in question)


def _response(response: Any) -> str:
    if isinstance(response, str):
        return response
    return "\n\n".join(f"[answer {i}]\n{text}" for i, text in enumerate(response, start=1))


def _wrapped(text: str, columns: int) -> list[str]:
    """The lines of a text, broken between words where possible."""
    wrapped = Text(harmless(text), tab_size=4).wrap(_WRAPPER, columns)
    return [line.plain.rstrip() for line in wrapped]


def _is_harmless(char: str) -> bool:
    if char in "\n\t":
        return True
    return unicodedata.category(char) not in ("Cc", "Cs") and char not in _ORDER_SIGNS


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
