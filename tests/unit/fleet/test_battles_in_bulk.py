"""`scope-judge battles --ray` without Ray: a worker in this process judges the parts."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.fleet.job import Job
from app.fleet.parts import cut
from app.fleet.sources import sources_of
from app.fleet.worker import PartWorker
from app.settings import read_settings
from tests.unit.cli.conftest import url as url
from tests.unit.cli.test_battles import battle, many, rows_in
from tests.unit.fleet.conftest import WriteRows

# A copy, a blank response, and one model on both sides are among them.
ROWS = [
    *many(12),
    battle("quality=1", " ", question="blank"),
    battle("quality=1", "quality=2", model_b="first"),
]


@pytest.fixture
def folder(bulk_folder: WriteRows) -> Path:
    return bulk_folder(ROWS)


def command(*words: str) -> Result:
    # Nothing listens there, so that the command ends where it would join a cluster.
    given = ["battles", "in.jsonl", "--out", "rows.jsonl", "--no-alpha"]
    return CliRunner().invoke(app, [*given, "--ray", "--address", "127.0.0.1:1", *words])


def judge_all(work: Path) -> int:
    """Judges every part, as the machines of a cluster would, and counts the comparisons."""
    worker = PartWorker(Job.of(read_settings(), {"alpha": None}, work / "judged"))
    sources = sources_of([work / "comparisons.jsonl"], work / "judged" / "input", "pairs")
    parts = cut(sources, rows_per_part=4).parts
    for number, part in enumerate(parts):
        assert worker.judge(number, part).kind == "done"
    worker.close()
    return sum(part.rows for part in parts)


def of_models(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the fields that tell runs apart."""
    own = ("timestamp", "signature")
    return [{name: value for name, value in row.items() if name not in own} for row in rows]


def test_the_rows_are_those_of_a_service(folder: Path, url: str) -> None:
    begun = command("--batch-size", "4")
    assert begun.exit_code == 1
    assert "no Ray cluster" in begun.stderr
    work = folder / "rows.jsonl.partial.ray"
    # A copy is judged once; the row with one model on both sides not at all.
    assert judge_all(work) == 9
    done = command("--batch-size", "4")
    assert done.exit_code == 1
    assert "2 of 14 battles got no judgment" in done.stderr
    assert not work.exists()
    rows = rows_in(folder / "rows.jsonl")
    assert all(row["timestamp"] for row in rows[:12])
    given = ["battles", "in.jsonl", "--out", "other.jsonl", "--no-alpha", "--url", url]
    assert CliRunner().invoke(app, given).exit_code == 1
    other = rows_in(folder / "other.jsonl")
    assert of_models(rows) == of_models(other)
    assert rows[0]["signature"] == other[0]["signature"]


def test_a_run_with_another_seed_does_not_take_over_its_parts(folder: Path) -> None:
    command("--batch-size", "4")
    judge_all(folder / "rows.jsonl.partial.ray")
    other = command("--batch-size", "4", "--seed", "1")
    assert other.exit_code == 1
    assert "belongs to a run with another input" in other.stderr
