"""Results of `scope-judge judge FILE` in every format are files that every command reads again."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.reading import read_rows
from tests.unit.cli.commands import BAD, GOOD, SAME, write_rows


def run(url: str, command: str, *arguments: object) -> Result:
    result = CliRunner().invoke(app, [command, *map(str, arguments), "--url", url])
    assert result.exit_code == 0, result.output
    return result


def pairs() -> list[dict[str, Any]]:
    models = {"model_a": "first", "model_b": "second"}
    texts = [(GOOD, BAD), (BAD, GOOD), (GOOD, SAME)] * 10
    return [
        {"question": f"{i}?", "response_a": a, "response_b": b, "label": "A", **models}
        for i, (a, b) in enumerate(texts)
    ]


def longest(row: dict[str, Any], name: str) -> Any:
    return row[max((column for column in row if column.endswith(name)), key=len)]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_judged_file_is_judged_again_and_read_by_every_command(
    service: str, tmp_path: Path, ending: str
) -> None:
    given = write_rows(tmp_path / "pairs.jsonl", pairs())
    once, twice, thrice = (tmp_path / f"{name}.{ending}" for name in ("once", "twice", "thrice"))
    run(service, "judge", given, "--alpha", "0.1", "--out", once)
    run(service, "judge", once, "--no-alpha", "--out", twice)
    run(service, "judge", twice, "--alpha", "0.2", "--out", thrice)
    first, last = ([row.fields for row in read_rows(path)] for path in (once, thrice))
    # Every column of the earlier runs is there as it was.
    assert [
        {name: row[name] for name in columns} for columns, row in zip(first, last, strict=True)
    ] == first
    if ending == "csv":
        assert {str(row["alpha"]) for row in first} == {"0.1"}
        assert {str(longest(row, "alpha")) for row in last} == {"0.2"}
    # The answers of the judge are found beside those of earlier runs.
    screens = {run(service, "curve", path).stdout for path in (once, twice, thrice)}
    assert len(screens) == 1
    assert screens.pop().startswith("30 labels without ties, accuracy 0.667")
    kept, battles = tmp_path / f"kept.{ending}", tmp_path / f"battles.{ending}"
    run(service, "filter", thrice, "--alpha", "0.1", "--out", kept)
    assert len(list(read_rows(kept))) == 10
    run(service, "battles", thrice, "--alpha", "0.1", "--out", battles)
    options = ["--human-probability", "1", "--out", str(tmp_path / "board")]
    run_board = CliRunner().invoke(app, ["leaderboard", str(battles), *options])
    assert run_board.exit_code == 0, run_board.output
