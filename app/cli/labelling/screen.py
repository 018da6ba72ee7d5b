"""The terminal that shows pairs to a person, blind: two answers, and nothing of the judge."""

import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import ColorDepth
from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from app.core.printable import printable
from app.service.labelling.pairs import PairText
from app.service.labelling.session import LabelSession

# Columns from which the answers are beside each other.
_BESIDE = 72
_BETWEEN = " | "
_KEYS = "left or 1: left is better   right or 2: right is better   t or =: tie"
_MORE_KEYS = "s: skip   u: undo   q: quit   up, down, space, b: scroll"
_CLOSING_KEY = "n: cannot be labelled"
# How a screen is left: after the last pair, by the person, or to say why a pair has no label.
Left = Literal["done", "quit", "close"]
_LINE_ENDS = str.maketrans(
    {"\r": "\n", "\v": "\n", "\f": "\n", "\x85": "\n", "\u2028": "\n", "\u2029": "\n"}
)
# Wraps text; it never writes.
_WRAPPER = Console(width=_BESIDE, color_system=None)


# Keys -> what a person chooses, and lines or pages to scroll.
_CHOICES = {"left": ("left", "1"), "right": ("right", "2"), "tie": ("t", "T", "=")}
_LINES = {1: ("down", "j"), -1: ("up", "k")}
_PAGES = {1: ("pagedown", " "), -1: ("pageup", "b")}
_EVERYTHING = {1: ("end",), -1: ("home",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The size of a terminal in cells."""

    columns: int
    lines: int


class PairScreen:
    """Shows the pairs of a session on the second screen of the terminal, and takes key presses.

    No text of a pair stays among the lines of the shell, and no colour is assumed. Ctrl-Z does
    nothing, because the shell would get a terminal in this state.

    Args:
        session: The pairs that wait, and the answers.
        closes: Whether a person can say that a pair cannot be labelled.
    """

    def __init__(self, session: LabelSession, *, closes: bool = False) -> None:
        self._session = session
        self._closes = closes
        self._foot = (_KEYS, _MORE_KEYS, *([_CLOSING_KEY] if closes else []))
        # Index of the first line of the pair that is shown, and the whole screen.
        self._first = 0
        self._shown = ""

    def run(self) -> Left:
        """Asks until each pair is answered or skipped, or until the person leaves.

        Raises:
            EOFError: The terminal was closed.
            KeyboardInterrupt: The person pressed Ctrl-C.
        """
        control = FormattedTextControl(self._text, get_cursor_position=self._end, show_cursor=True)
        application: Application[Left] = Application(
            layout=Layout(Window(control)),
            key_bindings=self._keys(),
            full_screen=True,
            erase_when_done=True,
            color_depth=ColorDepth.DEPTH_1_BIT,
        )
        clear_typeahead(application.input)
        _forget_keys()
        self._first = 0
        return application.run(set_exception_handler=False)

    def _keys(self) -> KeyBindings:
        session, keys = self._session, KeyBindings()

        def bind(names: Sequence[str], act: Callable[[], None]) -> None:
            for name in names:
                keys.add(name)(lambda event: self._go_on(event, act))

        bind(_CHOICES["left"], lambda: session.choose("left"))
        bind(_CHOICES["right"], lambda: session.choose("right"))
        bind(_CHOICES["tie"], lambda: session.choose("tie"))
        bind(("s", "S"), session.skip)
        bind(("u", "U"), session.undo)
        for name in ("q", "Q"):
            keys.add(name)(lambda event: event.app.exit(result="quit"))
        if self._closes:
            for name in ("n", "N"):
                keys.add(name)(lambda event: event.app.exit(result="close"))
        for name in ("c-c", "<sigint>"):
            keys.add(name)(lambda event: event.app.exit(exception=KeyboardInterrupt))
        for unit, steps in (("line", _LINES), ("page", _PAGES), ("all", _EVERYTHING)):
            for direction, names in steps.items():
                for name in names:
                    keys.add(name)(lambda _, u=unit, d=direction: self._scroll(u, d))
        return keys

    def _go_on(self, event: KeyPressEvent, act: Callable[[], None]) -> None:
        act()
        self._first = 0
        # No key may answer for a pair that nobody has seen.
        event.key_processor.empty_queue()
        _forget_keys()
        if self._session.current is None:
            event.app.exit(result="done")

    def _scroll(self, unit: str, direction: int) -> None:
        size = self._size()
        room = room_for_pair(size, self._foot)
        total = len(self._lines(size))
        step = {"line": 1, "page": max(1, room - 1), "all": total}[unit]
        self._first = scrolled(self._first, step * direction, total=total, room=room)

    def _text(self) -> str:
        # After the last pair, its screen stays until the terminal leaves it.
        if self._session.current is not None:
            size = self._size()
            lines = self._lines(size)
            # The terminal may have become larger.
            self._first = scrolled(
                self._first, 0, total=len(lines), room=room_for_pair(size, self._foot)
            )
            self._shown = "\n".join(
                screen_lines(lines, self._session.head, size, self._first, self._foot)
            )
        return self._shown

    def _lines(self, size: Size) -> list[str]:
        assert self._session.current is not None
        return pair_lines(self._session.current.text, size.columns)

    def _end(self) -> Point:
        return Point(0, self._text().count("\n"))

    def _size(self) -> Size:
        size = get_app().output.get_size()
        return Size(columns=size.columns, lines=size.rows)


def _forget_keys() -> None:
    """Drops the keys that were pressed but not read: they were meant for an earlier screen."""
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def harmless(text: str) -> str:
    """A text with one kind of line end, and escapes for characters that steer a terminal."""
    return printable(text.replace("\r\n", "\n").translate(_LINE_ENDS))


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


def screen_lines(
    pair: Sequence[str],
    head: str,
    size: Size,
    first: int,
    keys: Sequence[str] = (_KEYS, _MORE_KEYS),
) -> list[str]:
    """The lines of the whole screen: a head, a part of the pair, and the keys.

    Args:
        pair: All lines of the pair.
        head: A line above it.
        size: Size of the terminal.
        first: Index of the first line of the pair to show.
        keys: Lines about the keys.
    """
    foot = [line for each in keys for line in _wrapped(each, size.columns)]
    room = room_for_pair(size, keys)
    part = list(pair[first : first + room])
    part += [""] * (room - len(part))
    return [
        set_cell_size(head, size.columns).rstrip(),
        *part,
        _heading(_place(len(pair), first, room), size.columns),
        *foot,
    ][: size.lines]


def scrolled(first: int, step: int, *, total: int, room: int) -> int:
    """The index of the first line to show after a step.

    Args:
        first: Index of the line that is the first one now.
        step: Number of lines, negative to go up.
        total: Number of lines.
        room: Number of lines that the screen has room for.
    """
    return max(0, min(first + step, total - room))


def room_for_pair(size: Size, keys: Sequence[str] = (_KEYS, _MORE_KEYS)) -> int:
    """Number of lines for the pair on a terminal of this size, at least one."""
    foot = sum(len(_wrapped(each, size.columns)) for each in keys)
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


def _wrapped(text: str, columns: int) -> list[str]:
    """The lines of a text, broken between words where possible."""
    wrapped = Text(harmless(text), tab_size=4).wrap(_WRAPPER, columns)
    return [line.plain.rstrip() for line in wrapped]
