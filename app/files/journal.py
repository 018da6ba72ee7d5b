"""The results of an unfinished run, kept durably so that the same command can go on."""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from app.core.errors import InvalidRequestError
from app.files.append_only import AppendOnlyFile

_BEGINS = b'{"scope_judge_run": '


class Journal:
    """An append-only file of results by key, with a single writing process.

    The first line has the settings of the run; every other line has a key and its result. Results
    are durable when `append` returns, even if the process is killed afterwards. The next process
    that opens the file removes a line that was cut off in the middle.

    Args:
        file: Created if it does not exist; its folder must exist.
        settings: Everything that the results depend on beside their keys.
        replace: Drop the results of a run with other settings.

    Raises:
        InvalidRequestError: Another process writes the file, it cannot be opened, it is no journal,
            or its settings are others. The file is then unchanged.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], *, replace: bool = False) -> None:
        self.file = file
        self.results: dict[str, dict[str, Any]] = {}
        self._opened = AppendOnlyFile(file, follow_symlink=False)
        with ExitStack() as on_failure:
            on_failure.callback(self._opened.close)
            self._begin(json.loads(json.dumps(settings)), replace=replace)
            on_failure.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self.results:
            # Nothing to go on with. The file may be gone: `remove` was called.
            with suppress(FileNotFoundError):
                self.remove()
        self._opened.close()

    def append(self, results: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Appends results, durably.

        Raises:
            InvalidRequestError: The file cannot be written; its earlier content is unchanged.
        """
        new = dict(results)
        lines = [json.dumps({"key": key, "result": result}) for key, result in new.items()]
        self._opened.append("".join(f"{line}\n" for line in lines).encode("ascii"))
        self.results |= new

    def remove(self) -> None:
        """Removes the file; the lock is held until the journal is closed."""
        self.file.unlink()

    def _begin(self, settings: dict[str, Any], *, replace: bool) -> None:
        content = self._opened.content()
        if not content.startswith(_BEGINS[: len(content)]):
            raise InvalidRequestError(
                f"{self.file} was not written by this command: move it away, or name another output"
            )
        *lines, cut = content.split(b"\n")
        if not lines:
            self._opened.truncate(0)
            self._opened.append(_first_line(settings))
            return
        if cut:
            self._opened.truncate(len(content) - len(cut))
        try:
            earlier = json.loads(lines[0])["scope_judge_run"]
            self.results = {row["key"]: row["result"] for row in map(json.loads, lines[1:])}
        except (ValueError, KeyError, TypeError):
            raise InvalidRequestError(
                f"{self.file} is damaged: move it away to begin again"
            ) from None
        if earlier == settings:
            return
        if replace:
            self.results = {}
            self._opened.truncate(0)
            self._opened.append(_first_line(settings))
        else:
            changed = sorted(
                name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name)
            )
            raise InvalidRequestError(
                f"{self.file} has {len(self.results)} results of a run with other settings "
                f"({', '.join(changed)}): repeat that command to go on with it, or give "
                "--overwrite to begin again"
            )


def _first_line(settings: Mapping[str, Any]) -> bytes:
    return _BEGINS + json.dumps(settings).encode("ascii") + b"}\n"
