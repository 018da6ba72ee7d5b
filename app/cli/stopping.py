"""Ctrl-C while a judge loads: the process ends at once, and all that it started ends with it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from app import output

_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"


def end_now(sig: int, _frame: FrameType | None = None) -> NoReturn:
    """Ends the process within its signal handler, with the exit status that a shell expects.

    A model is loaded by libraries that catch exceptions and wait for their own processes, so an
    exception would arrive late or never. Nothing is lost: a store and a file of judgments are
    durable at any time, and the kernel kills the engine's processes with this one
    (`app.engines.descendants`).
    """
    # A second signal must not wait for this handler.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    output.finish()
    # The interrupted code may be writing to the same stream.
    with suppress(OSError, RuntimeError, ValueError):
        sys.stderr.flush()
    with suppress(OSError):
        # A progress display hides the cursor.
        begin = _SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{begin}stopped before the judge was ready\n".encode())
    os._exit(128 + sig)


@contextmanager
def ending_at_ctrl_c() -> Iterator[None]:
    """Ends the process at once if SIGINT arrives within the block."""
    before = signal.signal(signal.SIGINT, end_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
