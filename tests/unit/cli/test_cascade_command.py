"""Tests of `scope-judge cascade plan` against services that listen on a port."""

import re
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.judges.engines.scripted import ScriptedEngine
from tests.serving import application_of
from tests.unit.cli.commands import one_line, write_rows
from tests.unit.cli.listening import listening


def planned(folder: Path, url: str, *options: str, count: int = 1000) -> Result:
    rows = [
        {"question": f"{i}?", "response_a": f"quality={i % 40 / 10}", "response_b": "quality=2"}
        for i in range(count)
    ]
    file = write_rows(folder / "pairs.jsonl", rows)
    return CliRunner().invoke(app, ["cascade", "plan", str(file), "--url", url, *options])


def test_two_services_are_compared_and_nothing_is_written(tmp_path: Path) -> None:
    small, large = (application_of(ScriptedEngine(judge=name)) for name in ("small", "large"))
    with listening(small) as url, listening(large) as other:
        alone = planned(tmp_path, url)
        assert alone.exit_code == 1
        assert "has one judge: start it with SCOPE_ESCALATE_URL" in one_line(alone.stderr)
        few = planned(tmp_path, url, "--escalate-url", other, count=10)
        assert "at least 1,000 different pairs, and the files have 10" in one_line(few.stderr)
        prices = ("--small-price", "2", "--large-price", "40")
        told = planned(tmp_path, url, "--escalate-url", other, *prices)
        assert told.exit_code == 0, told.stderr
        assert "1000 pairs: the judges contradict each other on 0.0%" in one_line(told.stdout)
        asked = re.search(
            r"at least ([\d.]+)% of the pairs: ([\d.]+) a pair, against 40 for", told.stdout
        )
        assert asked is not None
        assert float(asked[2]) == pytest.approx(2 + 40 * float(asked[1]) / 100, abs=0.05)
        assert "Nothing was written." in told.stderr
        assert httpx.get(f"{url}/calibrations").json()["calibrations"] == []
