"""A sign of life while a stage takes long: a live line on a terminal, else a line now and then."""

import threading
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

# Between two lines, where the output is no terminal.
EVERY_S = 10.0
_REFRESHES_A_SECOND = 4


class Heartbeat:
    """Shows that a stage goes on, until `stop`; the stage may block the interpreter's main thread.

    Args:
        console: Console to write to.
        text: Name of the stage.
        begun: Time of the monotonic clock from which seconds count.
        every_s: Seconds between two lines where the console is no terminal.
    """

    def __init__(self, console: Console, text: str, *, begun: float, every_s: float) -> None:
        self._console, self._text, self._begun = console, text, begun
        self._every_s = every_s
        self._stage_begun = time.monotonic()
        self._stopped = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None
        if console.is_terminal:
            # Other output stays as it is: its writers would lose their place in a queue.
            self._live = Live(
                get_renderable=self._line,
                console=console,
                refresh_per_second=_REFRESHES_A_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        else:
            self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Removes the live line, or ends the lines."""
        self._stopped.set()
        if self._live is not None:
            self._live.stop()
        if self._thread is not None:
            self._thread.join()

    def _line(self) -> Text:
        now = time.monotonic()
        stage_s = now - self._stage_begun
        return Text(f"{now - self._begun:5.1f} s  {self._text}: still at work, {stage_s:.0f} s")

    def _beat(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._console.print(self._line(), soft_wrap=True)
