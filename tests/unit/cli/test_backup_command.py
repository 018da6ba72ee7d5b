"""Tests of `scope-judge backup` and `scope-judge restore`: their files, messages and refusals."""

import asyncio
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.cli.commands.restore import shown_url
from app.ports import Store
from app.stores.sqlite import SqliteStore
from tests.serving import services_of
from tests.unit.audits.drawing import EXAMPLES, ids, traffic
from tests.unit.cli.commands import one_line

runner = CliRunner()


def run(*arguments: object, store: Path | str | None = None) -> Result:
    url = f"sqlite:///{store}" if isinstance(store, Path) else store
    environment = {"SCOPE_STORE_URL": url}
    return runner.invoke(app, list(map(str, arguments)), env=environment)


def error(result: Result) -> str:
    assert result.exit_code == 1
    return one_line(result.stderr)


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """The file of a store with a set, five audits and the place of their criterion."""
    path = tmp_path / "used.db"
    asyncio.run(use(SqliteStore(path)))
    return path


async def use(store: Store) -> None:
    await store.open()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        await ids(services, traffic(range(5)))
    await store.close()


def test_a_store_goes_into_a_file_of_its_owner_and_back(used: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "night.jsonl", tmp_path / "other.db"
    done = run("backup", file, store=used)
    assert done.exit_code == 0, done.stderr
    amount = "calibration sets: 1, rows of audits: 5."
    assert one_line(done.stderr).endswith(f"{file} is complete; {amount}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    back = run("restore", file, "--store", f"sqlite:///{other}")
    assert back.exit_code == 0, back.stderr
    assert f"sqlite:///{other} is as of 20" in one_line(back.stderr)
    assert one_line(back.stderr).endswith(amount)
    again = tmp_path / "again.jsonl"
    assert run("backup", again, store=other).exit_code == 0
    # All but the times in the first lines.
    assert again.read_bytes().splitlines()[1:-1] == file.read_bytes().splitlines()[1:-1]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rediss://me:a@b@host:6379/1?password=secret", "rediss://host:6379/1"),
        ("unix:///run/a@b.sock?db=1", "unix:///run/a@b.sock"),
    ],
)
def test_the_url_of_a_store_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_store_that_is_used_is_kept(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "night.jsonl"
    assert run("backup", file, store=used).exit_code == 0
    assert "the store has sets or audits, and nothing was changed" in error(
        run("restore", file, store=used)
    )


def test_an_empty_store_makes_no_backup_and_replaces_none(tmp_path: Path) -> None:
    file, empty = tmp_path / "night.jsonl", tmp_path / "empty.db"
    asyncio.run(make(empty))
    file.write_text("yesterday's")
    refused = run("backup", file, "--overwrite", store=empty)
    assert "the store is empty, and nothing was written" in error(refused)
    assert file.read_text() == "yesterday's"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty.db", "night.jsonl"]


async def make(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


def test_a_missing_file_of_a_store_is_not_made(tmp_path: Path) -> None:
    refused = run("backup", tmp_path / "night.jsonl", store=tmp_path / "mistyped.db")
    assert f"there is no file {tmp_path}/mistyped.db" in error(refused)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_is_replaced_only_with_overwrite(used: Path, tmp_path: Path) -> None:
    file = tmp_path / "night.jsonl"
    file.write_text("yesterday's")
    assert "already exists" in error(run("backup", file, store=used))
    assert file.read_text() == "yesterday's"
    assert run("backup", file, "--overwrite", store=used).exit_code == 0
    assert file.read_text().startswith('{"scope_judge_backup":5,')


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (None, "no store: set SCOPE_STORE_URL, or give --store"),
        ("memory://", "memory:// is within one process"),
        ("mysql://host/db", "unknown scheme 'mysql'"),
        ("redis://:hidden@127.0.0.1:1/0", "Redis at 127.0.0.1:1 does not answer"),
    ],
)
@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_store_that_cannot_be_used_is_a_sentence(
    command: str, store: str | None, reason: str, used: Path, tmp_path: Path
) -> None:
    file = tmp_path / "night.jsonl"
    if command == "restore":
        assert run("backup", file, store=used).exit_code == 0
    said = error(run(command, file, store=store))
    assert reason in said
    assert "hidden" not in said
    assert file.exists() == (command == "restore")


def test_a_truncated_backup_is_refused_before_the_store_is_opened(
    used: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "night.jsonl", tmp_path / "other.db"
    assert run("backup", file, store=used).exit_code == 0
    file.write_bytes(file.read_bytes()[:-100])
    assert "was cut off or changed" in error(run("restore", file, store=other))
    assert not other.exists()
    assert "does not exist" in error(run("restore", tmp_path / "no", store=other))
