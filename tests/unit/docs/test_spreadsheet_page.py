"""The commands of docs/guides/spreadsheet.md lead from a labeled table to verdicts."""

import os
import subprocess
import sys
from pathlib import Path

from openpyxl import Workbook, load_workbook

from tests.unit.api.problems import examples
from tests.unit.clients.conftest import running
from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS

PAGE = DOCS / "guides" / "spreadsheet.md"


def test_the_commands_run_as_written(tmp_path: Path) -> None:
    labeled = examples()
    write(tmp_path / "labeled.xlsx", labeled)
    write(tmp_path / "rest.xlsx", [{"row": "1", **without_label(row)} for row in labeled[:5]])
    commands = [
        block.text
        for block in markdown.blocks(PAGE.read_text(encoding="utf-8"))
        if block.language == "bash"
    ]
    folder = str(Path(sys.executable).parent)
    with running() as url:
        environment = {
            **os.environ,
            "SCOPE_URL": url,
            "PATH": os.pathsep.join([folder, os.environ["PATH"]]),
        }
        for command in commands:
            subprocess.run(["bash", "-euc", command], cwd=tmp_path, env=environment, check=True)
    header, *rows = load_workbook(tmp_path / "judged.xlsx").active.iter_rows(values_only=True)
    judged = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["row"] for row in judged] == ["1"] * 5
    assert {row["verdict"] for row in judged} <= {"A", "B", "abstain"}


def without_label(row: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if name != "label"}


def write(file: Path, rows: list[dict[str, str]]) -> None:
    book = Workbook()
    for row in [list(rows[0]), *(list(row.values()) for row in rows)]:
        book.active.append(row)
    book.save(file)
