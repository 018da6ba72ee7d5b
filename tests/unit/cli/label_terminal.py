"""A person at `scope-judge label`, in a terminal of 100 by 30."""

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

_CLEAR, _LEAVE = "\x1b[2J\x1b[H", "\x1b[?1049l"
_QUESTION = re.compile(r"Question (\d+)\b")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
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

    def __init__(self, process: "subprocess.Popen[bytes]", fd: int) -> None:
        self.process = process
        self._fd = fd
        self.output = ""
        # Length of the output when a key was pressed: what is older is the screen before it.
        self._answered = 0

    def pair(self) -> Shown | None:
        """Waits for a whole new screen with a pair; None if the command has ended."""
        while True:
            _, found, screen = self.output[self._answered :].rpartition(_CLEAR)
            if found and "scroll" in screen:
                return _shown(screen)
            if not self._read():
                return None

    def press(self, keys: str | bytes) -> None:
        """Presses keys for the screen that is shown."""
        self._answered = len(self.output)
        os.write(self._fd, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, lines: int, columns: int) -> None:
        """Changes the size of the window."""
        self._answered = len(self.output)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> str:
        """Waits for the end of the command, and returns the text after the pairs."""
        while self._read():
            pass
        self.process.wait()
        return " ".join(_STYLE.sub("", self.output.rpartition(_LEAVE)[2]).split())

    def _read(self) -> bool:
        try:
            found = os.read(self._fd, 65536)
        except OSError as exc:
            # Linux reports that nobody writes any more.
            if exc.errno != errno.EIO:
                raise
            found = b""
        self.output += found.decode("utf-8", "replace")
        return bool(found)


def _shown(screen: str) -> Shown:
    match = _QUESTION.search(screen)
    lines = [line.split(" | ", 1) for line in screen.splitlines() if " | " in line]
    left, right = (" ".join(part[i] for part in lines[1:]) for i in (0, 1))
    return Shown(int(match[1]) if match else None, left.strip(), right.strip(), screen)


@contextmanager
def labelling(*options: str, environment: Mapping[str, str] = {}) -> Iterator[Terminal]:
    """Runs the command; ends it with the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    # With a terminal of its own, so that Ctrl-C and the end of the connection reach it. The latter
    # is ignored where `nohup` runs the tests.
    command = ["setsid", "--ctty", "env", "--default-signal=HUP"]
    command += [sys.executable, "-c", "from app.cli import main; main()"]
    with subprocess.Popen(
        [*command, "label", *options],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)
