"""A person at `scope-judge label`, in a terminal of 100 by 30."""

import codecs
import errno
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyte

from tests.forked import ForkedCommand

# The terminal's second screen, and the cursor, which is hidden while a screen is drawn.
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_QUESTION = re.compile(r"Question (\d+)\b")
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
LINES, COLUMNS = 30, 100


class Shown(NamedTuple):
    """The pair on the screen.

    Args:
        number: Number of its question; None if the question is scrolled away.
        left: Text on the left.
        right: Text on the right.
        text: The whole screen.
    """

    number: int | None
    left: str
    right: str
    text: str


class Terminal:
    """The process, and what it has written so far.

    Args:
        process: The command.
        fd: Our end of the terminal.
    """

    def __init__(self, process: ForkedCommand, fd: int) -> None:
        self.process = process
        self._fd = fd
        self.output = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.Stream(self._screen)
        # The screen when a key was pressed, and the length of the output then.
        self._before: tuple[str, ...] = ()
        self._answered = 0

    def pair(self) -> Shown | None:
        """Waits for another whole screen with a pair; None if the command has ended."""
        while True:
            is_second = self.output.rfind(_ENTER) > self.output.rfind(_LEAVE)
            is_whole = self.output.rfind(_SHOW) > max(self.output.rfind(_HIDE), self._answered)
            # Drawing the screen takes longer than to read it.
            if is_second and is_whole:
                lines = tuple(self._screen.display)
                if lines != self._before and "scroll" in "".join(lines):
                    return _shown(lines)
            if not self._read():
                return None

    def press(self, keys: str | bytes) -> None:
        """Presses keys for the screen that is shown."""
        self._remember()
        os.write(self._fd, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, lines: int, columns: int) -> None:
        """Changes the size of the window."""
        self._remember()
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, text: str) -> None:
        """Waits for a text after the screen of a pair was left."""
        while _ENTER in (below := self.output.rpartition(_LEAVE)[2]) or text not in below:
            assert self._read(), self.output

    def end(self) -> str:
        """Waits for the end of the command, and returns the text after the pairs."""
        while self._read():
            pass
        self.process.wait()
        return " ".join(_SEQUENCE.sub("", self.output.rpartition(_LEAVE)[2]).split())

    def _read(self) -> bool:
        try:
            found = os.read(self._fd, 65536)
        except OSError as exc:
            # Linux reports that nobody writes any more.
            if exc.errno != errno.EIO:
                raise
            found = b""
        text = self._decoder.decode(found)
        self.output += text
        self._stream.feed(text)
        return bool(found)

    def _remember(self) -> None:
        self._before, self._answered = tuple(self._screen.display), len(self.output)


def _shown(screen: Sequence[str]) -> Shown:
    text = "\n".join(line.rstrip() for line in screen)
    match = _QUESTION.search(text)
    rows = [line.split(" | ", 1) for line in screen if " | " in line]
    left, right = ("".join(row[i].strip() for row in rows[1:]) for i in (0, 1))
    return Shown(
        number=int(match[1]) if match else None, left=left, right=right, text=text.rstrip()
    )


@contextmanager
def labelling(
    *options: str, environment: Mapping[str, str] = {}, command: Sequence[str] = ("label",)
) -> Iterator[Terminal]:
    """Runs the command; ends it with the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm", **environment}
    process = ForkedCommand([*command, *options], environment=variables, output=theirs)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
