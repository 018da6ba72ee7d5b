"""The terminal that the screens of pairs need."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from app.cli.console import CommandError
from app.files.reading import STDIN


def check_terminal(files: Sequence[Path], *, otherwise: str) -> None:
    """Refuses to show pairs where nobody can see them or press a key.

    Args:
        files: The files of pairs.
        otherwise: Alternative without a terminal, for the message.

    Raises:
        CommandError: There is no terminal, or it cannot show a screen, or the keys are a file.
    """
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise CommandError(
            f"label shows pairs and takes key presses, so it needs a terminal; {otherwise}"
        )
    if os.environ.get("TERM", "dumb") == "dumb":
        raise CommandError("label draws on the terminal, and TERM=dumb says that this one cannot")
    if STDIN in files:
        raise CommandError("label reads keys from standard input: give a file of pairs")
