"""Files of the tools in which people label pairs: written for one of them, read from any."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from app.core.errors import InvalidRequestError
from app.files import argilla, label_studio
from app.files.reading import FileRow, read_rows
from app.files.replacing import replacing
from app.files.writing import replace_file
from app.service.labelling.pairs import BlindPair
from app.service.labelling.tickets import ToolAnswer

ToolName = Literal["label-studio", "argilla"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool in which people label.

    Args:
        title: Its name, for people.
        row_of: A pair -> the row that shows it.
        settings: The file that tells the tool what to ask.
        settings_ending: End of that file's name.
        is_export: Whether a row is one of its export.
        answers_of: A row of its export -> the answers.
    """

    title: str
    row_of: Callable[[BlindPair], dict[str, Any]]
    settings: str
    settings_ending: str
    is_export: Callable[[FileRow], bool]
    answers_of: Callable[[FileRow], Iterator[ToolAnswer]]


TOOLS: Mapping[ToolName, Tool] = {
    "label-studio": Tool(
        title="Label Studio",
        row_of=label_studio.task_of,
        settings=label_studio.CONFIGURATION,
        settings_ending=".xml",
        is_export=label_studio.is_export,
        answers_of=label_studio.answers_of,
    ),
    "argilla": Tool(
        title="Argilla",
        row_of=argilla.record_of,
        settings=json.dumps(argilla.SETTINGS, indent=2) + "\n",
        settings_ending=".settings.json",
        is_export=argilla.is_export,
        answers_of=argilla.answers_of,
    ),
}


def settings_path(out: Path, tool: Tool) -> Path:
    """The file that tells the tool what to ask about the pairs in `out`."""
    return out.with_name(f"{out.stem}{tool.settings_ending}")


def write_pairs(out: Path, pairs: Sequence[BlindPair], tool: Tool) -> None:
    """Writes pairs as a tool imports them, and beside them the file of its settings.

    Raises:
        OSError: A file cannot be written; an earlier one is unchanged.
    """
    with replacing(settings_path(out, tool)) as file:
        file.write(tool.settings.encode())
    replace_file(out, [tool.row_of(pair) for pair in pairs])


def read_answers(path: Path) -> list[ToolAnswer]:
    """Reads the answers that a tool has exported; a broken row is an answer with its problem.

    Raises:
        InvalidRequestError: The file cannot be read, or its first row is of no tool.
    """
    rows = list(read_rows(path))
    if not rows:
        raise InvalidRequestError(f"{path} has no rows")
    tool = next((tool for tool in TOOLS.values() if tool.is_export(rows[0])), None)
    if tool is None:
        titles = " or ".join(tool.title for tool in TOOLS.values())
        raise InvalidRequestError(
            f"{rows[0].place}: this is not an export of {titles}: pairs that `audits export` "
            "wrote, labelled there and exported as JSON"
        )
    return list(chain.from_iterable(_answers(row, tool) for row in rows))


def _answers(row: FileRow, tool: Tool) -> Iterator[ToolAnswer]:
    if tool.is_export(row):
        return tool.answers_of(row)
    return iter([ToolAnswer(place=row.place, problem=f"this is not a row of {tool.title}")])
