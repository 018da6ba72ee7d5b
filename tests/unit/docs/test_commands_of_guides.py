"""The commands of guides run as they are written."""

import json
import os
import subprocess
import sys
from pathlib import Path

from openpyxl import Workbook, load_workbook

from tests.unit.api.problems import examples
from tests.unit.clients.conftest import running
from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS


def run_commands(page: str, folder: Path, section: str = "", **environment: str) -> None:
    """Runs the commands of a page, or of its section, as written, without those that call HTTP."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in markdown.blocks((DOCS / page).read_text(encoding="utf-8")):
        is_wanted = block.language == "bash" and section in ("", block.section)
        if is_wanted and not block.text.startswith("curl "):
            lines = block.text.splitlines()
            commands = "\n".join(line for line in lines if not line.startswith("curl "))
            # One team is as good as five, and the date of the page passes.
            commands = commands.replace("ads docs help legal search", "docs")
            commands = commands.replace("2027-06-30", "2999-06-30")
            subprocess.run(
                ["bash", "-euc", commands],
                cwd=folder,
                env={**os.environ, "PATH": path, **environment},
                check=True,
            )


def test_five_teams_get_their_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    run_commands("guides/keys.md", tmp_path, SCOPE_API_KEYS_FILE=str(file))
    # The page revokes the key that it makes first.
    keys = {key["name"]: key for key in json.loads(file.read_text())["keys"]}
    assert keys.keys() == {"docs", "docs-ann", "prometheus", "lab"}
    assert keys["docs"]["calibrations"] == ["docs", "docs-2"]
    assert keys["docs-ann"]["roles"] == ["label"]
    assert keys["lab"]["comparisons_per_minute"] == 600


def test_rewards_are_checked_and_samples_become_pairs(tmp_path: Path) -> None:
    rows = "".join(json.dumps(row) + "\n" for row in examples(200))
    (tmp_path / "app" / "demo").mkdir(parents=True)
    for file in ("labeled.jsonl", "app/demo/try.jsonl"):
        (tmp_path / file).write_text(rows)
    with running() as url:
        run_commands("guides/rewards.md", tmp_path, SCOPE_URL=url)
        page, section = "integrations/dpo.md", "Several responses for a prompt"
        run_commands(page, tmp_path, section=section, SCOPE_URL=url)
    assert (tmp_path / "dpo.jsonl").read_text().count("chosen_reward") == 200


def test_a_spreadsheet_becomes_verdicts(tmp_path: Path) -> None:
    labeled = examples(200)
    write(tmp_path / "labeled.xlsx", labeled)
    write(tmp_path / "rest.xlsx", [{"row": "1", **without_label(row)} for row in labeled[:5]])
    with running() as url:
        run_commands("guides/spreadsheet.md", tmp_path, SCOPE_URL=url)
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
