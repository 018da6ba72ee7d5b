"""The place of the journal of a run whose output is not a file."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from app.core.errors import InvalidRequestError
from app.files.reading import files_of


def journal_path(inputs: Sequence[Path], name: str) -> Path:
    """The journal's file: beside the first input, or in the user's cache if that is impossible.

    Args:
        inputs: Files, folders and patterns.
        name: End of the file's name, with the command and the calibration set; the service checks
            the name of the set.

    Raises:
        InvalidRequestError: No folder can be written.
    """
    first = files_of(inputs)[0]
    # Hidden, because a pattern such as data/* must not match it.
    ending = f".{re.sub('[^A-Za-z0-9._-]', '_', name)}"
    folder = first.resolve().parent
    if first.is_file() and os.access(folder, os.W_OK):
        return folder / f".{first.name}{ending}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "scope-judge"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise InvalidRequestError(
            f"the results so far cannot be kept in {cache}: {exc.strerror}; set XDG_CACHE_HOME to "
            "a folder that can be written"
        ) from None
    # Different files with the same name have different journals.
    digest = hashlib.sha256(os.fsencode(first.absolute())).hexdigest()[:16]
    return cache / f"{first.name}-{digest}{ending}"
