"""The recipe of docs/integrations/dpo.md turns judged pairs into pairs for DPO."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.problems import comparison
from tests.unit.cli.commands import rows_of, write_rows
from tests.unit.cli.judging_service import Service, judged, judgment
from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS

PAGE = DOCS / "integrations" / "dpo.md"


def recipe() -> str:
    """The command of the page behind that of `scope-judge judge`."""
    (command,) = (
        block.text
        for block in markdown.blocks(PAGE.read_text(encoding="utf-8"))
        if block.section == "Pairs without labels"
    )
    return command[command.index("jq ") :]


def result(item: dict[str, Any]) -> dict[str, Any]:
    """A judgment whose verdict is the question, or the error of a bad one."""
    made = judgment(item)
    return made if "error" in made else {**made, "verdict": item["question"]}


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_verdicts_choose_and_abstentions_and_errors_are_left_out(tmp_path: Path) -> None:
    questions = ("A", "abstain", "B", "bad")
    rows = [
        comparison(question=each, response_a=f"{each} 1", response_b=f"{each} 2")
        for each in questions
    ]
    file = write_rows(tmp_path / "pairs.jsonl", rows)
    assert judged(Service(result=result), file, out=tmp_path / "judged.jsonl").exit_code == 1
    subprocess.run(["bash", "-euc", recipe()], cwd=tmp_path, check=True)
    assert rows_of((tmp_path / "dpo.jsonl").read_text(encoding="utf-8")) == [
        {"prompt": "A", "chosen": "A 1", "rejected": "A 2"},
        {"prompt": "B", "chosen": "B 2", "rejected": "B 1"},
    ]
