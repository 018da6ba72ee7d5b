"""The progress bar of long calls, if tqdm is installed."""

import sys
from collections.abc import Sized
from typing import Any


class Bar:
    """A progress bar, or nothing.

    Args:
        wanted: None for a bar if tqdm is installed and stderr is a terminal; True or False to
            choose.
        inputs: The inputs; their number is the total if it is known.

    Raises:
        ImportError: A bar is wanted and tqdm is not installed.
    """

    def __init__(self, wanted: bool | None, inputs: object) -> None:
        self._bar: Any = None
        if wanted is False or (wanted is None and not sys.stderr.isatty()):
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            if wanted:
                raise
            return
        total = len(inputs) if isinstance(inputs, Sized) else None
        self._bar = tqdm(total=total)

    def advance(self, count: int) -> None:
        """Moves the bar on."""
        if self._bar is not None:
            self._bar.update(count)

    def close(self) -> None:
        """Ends the bar, which stays visible."""
        if self._bar is not None:
            self._bar.close()
