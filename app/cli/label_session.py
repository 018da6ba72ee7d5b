"""Shows pairs to a person at a terminal, one after the other, and keeps each answer."""

import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from rich.console import Console

from app.cli.console import failure
from app.cli.key_press import Keyboard
from app.cli.label_answers import SKIP, Answers, Pooled
from app.cli.label_pool import Next, Pool
from app.cli.pair_screen import Size, label_of, pair_lines, room_for_pair, screen_lines, shown_pair

# Key -> choice.
CHOICES = {
    **dict.fromkeys(("left", "1"), "left"),
    **dict.fromkeys(("right", "2"), "right"),
    **dict.fromkeys(("t", "T", "="), "tie"),
    **dict.fromkeys(("s", "S"), "skip"),
    **dict.fromkeys(("u", "U"), "undo"),
    **dict.fromkeys(("q", "Q"), "quit"),
}
# Erases the screen, and moves the cursor to its first place.
_CLEAR = "\x1b[2J\x1b[H"
# The terminal's second screen, so that no text of a pair stays among the lines of the shell.
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
# The size of the terminal is looked at so often.
_LOOK_S = 0.5


class Outcome(NamedTuple):
    """The state at the end of a session.

    Args:
        found: The last answer of the service.
        skipped: Number of pairs that the next test needs and that were skipped.
        absent: Number of pairs that the next test needs and that are not in the files.
    """

    found: Next
    skipped: int = 0
    absent: int = 0


class LabelSession:
    """A person at a terminal.

    Args:
        answers: Keeps the answers.
        keyboard: The keys of the terminal.
        out: The terminal.
    """

    def __init__(self, answers: Answers, keyboard: Keyboard, out: Console) -> None:
        self._answers = answers
        self._keyboard = keyboard
        self._out = out
        # Pairs that were answered in this session, for undo; a skip is an answer here.
        self._answered: list[Pooled] = []
        self._is_shown = False

    def run(self, pool: Pool) -> Outcome:
        """Asks for labels until the threshold is known, nothing can be asked, or the person quits.

        Raises:
            typer.Exit: The service does not answer for too long.
        """
        resent: set[str] = set()
        while True:
            pool.post(self._answers)
            found = pool.next()
            known = self._answers.by_digest
            needed = [known[each] for each in found.digests if each in known]
            lost = [each for each in needed if self._answers.label(each) is not None]
            if lost:
                # Somebody has rolled the set back: nothing is asked twice.
                self._send_again(lost, resent)
                continue
            passed_over = {each.item.key for each in self._answered} & {
                each.item.key for each in needed
            }
            asked = [each for each in needed if each.item.key not in passed_over]
            if found.complete or not asked:
                return Outcome(found, len(passed_over), len(found.digests) - len(needed))
            if not self._ask(asked):
                pool.post(self._answers)
                return Outcome(pool.next())

    def _send_again(self, lost: Sequence[Pooled], resent: set[str]) -> None:
        keys = {each.item.key for each in lost}
        if keys <= resent:
            raise failure("the service does not keep the labels: look at the versions of the set")
        resent |= keys
        self._answers.note_posted(lost, posted=False)

    def _ask(self, pairs: Sequence[Pooled]) -> bool:
        """Asks for pairs until each is answered or skipped; returns False if the person quits."""
        queue = deque(pairs)
        try:
            while queue:
                choice = self._choice(queue[0], left=len(queue))
                if choice == "quit":
                    return False
                if choice == "undo":
                    if self._answered:
                        queue.appendleft(self._answered.pop())
                    continue
                pair = queue.popleft()
                answer = SKIP if choice == "skip" else label_of(choice, pair.left)
                self._answers.record(pair, answer)
                self._answered.append(pair)
        finally:
            # The terminal may be gone.
            with suppress(OSError):
                self._hide()
        return True

    def _choice(self, pair: Pooled, *, left: int) -> str:
        """Shows a pair, and waits for a choice."""
        texts, size, first = shown_pair(pair.fields, pair.left), self._size(), 0
        lines = pair_lines(texts, size.columns)
        most, number = len(self._answers.pairs), self._answers.given + 1
        head = f"label {number} of at most {most}: {left} until the next test"
        # Before the pair is shown: no key may answer for a pair that nobody has seen.
        self._keyboard.forget()
        shown: tuple[Size, int] | None = None
        while True:
            if shown != (size, first):
                self._paint(screen_lines(lines, head, size, first))
                shown = size, first
            key = self._keyboard.read(_LOOK_S)
            if self._size() != size:
                size = self._size()
                lines = pair_lines(texts, size.columns)
                first = scrolled(None, first, len(lines), room_for_pair(size))
            if key in CHOICES:
                return CHOICES[key]
            first = scrolled(key, first, len(lines), room_for_pair(size))

    def _paint(self, lines: Sequence[str]) -> None:
        begin = _CLEAR if self._is_shown else _ENTER + _CLEAR
        self._is_shown = True
        # In one write, so that a slow line shows no half of a screen.
        self._write("\n" if self._out.is_dumb_terminal else begin, "\n".join(lines))

    def _hide(self) -> None:
        """Leaves the screen with the pair; messages to the person appear on the other one."""
        if self._is_shown:
            self._is_shown = False
            self._write("\n" if self._out.is_dumb_terminal else _LEAVE)

    def _write(self, *texts: str) -> None:
        self._out.file.write("".join(texts))
        self._out.file.flush()

    def _size(self) -> Size:
        found = os.get_terminal_size(sys.stdout.fileno())
        # A pty may say 0 by 0.
        return Size(found.columns or 80, found.lines or 24)


def scrolled(key: str | None, first: int, total: int, room: int) -> int:
    """The index of the first line to show after a key.

    Args:
        key: The key; None if none was pressed.
        first: Index of the line that is the first one now.
        total: Number of lines.
        room: Number of lines that the screen has room for.
    """
    page = max(1, room - 1)
    step = {
        **{"down": 1, "j": 1, "up": -1, "k": -1},
        **{"page down": page, " ": page, "page up": -page, "b": -page},
        **{"home": -total, "end": total},
    }.get(key or "", 0)
    return max(0, min(first + step, total - room))
