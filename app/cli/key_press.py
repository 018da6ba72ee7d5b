"""Single key presses from a terminal, without waiting for the end of a line."""

import os
import re
import select
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_ESCAPE = b"\x1b"
# Sequences of escape that terminals send, and those of any other key.
_NAMED = {
    **{b"[A": "up", b"[B": "down", b"[C": "right", b"[D": "left"},
    **{b"OA": "up", b"OB": "down", b"OC": "right", b"OD": "left"},
    **{b"[5~": "page up", b"[6~": "page down"},
    **{b"[H": "home", b"OH": "home", b"[1~": "home", b"[F": "end", b"OF": "end", b"[4~": "end"},
}
_SEQUENCE = re.compile(rb"(\[[0-?]*[ -/]*[@-~]|O.)", re.DOTALL)
# The rest of a sequence arrives within so many seconds, also over a slow line.
_SEQUENCE_S = 0.1
_MOST_BYTES = 1024


class Keyboard:
    """The keys of a terminal; the terminal is as before when the block ends.

    Ctrl-C still interrupts. Ctrl-Z does nothing, because the shell would get a terminal in this
    state.

    Args:
        fd: File descriptor of the terminal.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] = []
        self._pending = b""

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSANOW)
        attributes = termios.tcgetattr(self._fd)
        attributes[6][termios.VSUSP] = b"\x00"
        termios.tcsetattr(self._fd, termios.TCSANOW, attributes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # The terminal may be gone.
        with suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def forget(self) -> None:
        """Drops the keys that were pressed but not read: they were meant for an earlier screen."""
        self._pending = b""
        termios.tcflush(self._fd, termios.TCIFLUSH)

    def read(self, timeout_s: float) -> str | None:
        """The next key: a character, or a name such as "left" or "page down".

        Args:
            timeout_s: Seconds to wait.

        Returns:
            The key; "" for a key without a name; None if none was pressed.

        Raises:
            EOFError: The terminal was closed.
        """
        if not self._pending and not self._receive(timeout_s):
            return None
        if self._pending == _ESCAPE:
            self._receive(_SEQUENCE_S)
        key, self._pending = next_key(self._pending)
        return key

    def _receive(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if not ready:
            return False
        try:
            received = os.read(self._fd, _MOST_BYTES)
        except OSError:
            # Linux reports a closed terminal so.
            received = b""
        if not received:
            raise EOFError
        self._pending += received
        return True


def next_key(pending: bytes) -> tuple[str, bytes]:
    """The first key of what a terminal has sent, and the rest.

    Args:
        pending: At least one byte.
    """
    if pending.startswith(_ESCAPE):
        sequence = _SEQUENCE.match(pending, 1)
        if sequence is None:
            return "escape", pending[1:]
        return _NAMED.get(sequence[0], ""), pending[sequence.end() :]
    length = next((n for n in range(1, 5) if _is_text(pending[:n])), 1)
    return pending[:length].decode("utf-8", "ignore"), pending[length:]


def _is_text(some: bytes) -> bool:
    try:
        some.decode()
    except UnicodeDecodeError:
        return False
    return True
