"""The file that a command writes its rows to."""

import os
from collections.abc import Sequence
from pathlib import Path

from app.cli.console import failure
from app.files.writing import format_of


def check_output(out: Path | None, inputs: Sequence[Path], *, overwrite: bool) -> None:
    """Refuses a file that cannot or must not be written, before any work is done.

    Args:
        out: The file; None for stdout.
        inputs: Files that are read.
        overwrite: Whether a file that is there may be replaced.

    Raises:
        InvalidRequestError: The name asks for an unknown format.
        typer.Exit: The file is refused.
    """
    if out is None:
        return
    format_of(out)
    if out.exists() and not out.is_file():
        raise failure(f"--out {out} is no regular file; leave --out away and redirect stdout")
    if not out.resolve().parent.is_dir():
        raise failure(f"--out {out} cannot be written: there is no folder {out.resolve().parent}")
    if not out.exists():
        return
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise failure(f"--out {out} would overwrite the file that is judged; name another one")
    if not overwrite:
        raise failure(f"{out} is there already: name another --out, or replace it with --overwrite")
    if not os.access(out, os.W_OK):
        raise failure(f"{out} cannot be written: Permission denied")
