"""Tests of `scope-judge keys`: its file, its messages, and concurrent runs."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.api.keys import Keys, hash_of, parse_key_file
from app.cli import app
from tests.patience import PATIENCE_S
from tests.unit.api.keyring import entry, write_keys
from tests.unit.cli.commands import one_line

runner = CliRunner()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def run(path: Path | None, *arguments: str) -> Result:
    file = [] if path is None else ["--file", str(path)]
    return runner.invoke(app, ["keys", *arguments, *file])


def names_in(path: Path) -> list[str]:
    return [each.name for each in parse_key_file(path.read_bytes()).keys]


def test_a_key_is_printed_once_and_only_its_hash_is_kept(path: Path) -> None:
    result = run(path, "add", "ci", "--role", "judge", "--role", "calibrate", "--role", "judge")
    assert result.exit_code == 0, result.stderr
    key = result.stdout.removesuffix("\n")
    assert key.startswith("scope_")
    assert not key.isspace()
    assert key not in path.read_text() + result.stderr
    [kept] = json.loads(path.read_text())["keys"]
    assert kept["sha256"] == hash_of(key.encode()).hex()
    assert (kept["name"], kept["roles"], kept["calibrations"]) == (
        "ci",
        ["judge", "calibrate"],
        None,
    )
    assert not result.stderr, "a script that keeps the key wants nothing else"
    caller = Keys(path).caller(key.encode())
    assert (caller.name, caller.roles) == ("ci", ["judge", "calibrate"])


def test_a_key_can_expire_and_have_a_limit(path: Path) -> None:
    limits = ("--expires", "2999-12-31 18:00", "--comparisons-per-minute", "600")
    result = run(path, "add", "ci", "--role", "judge", *limits)
    assert result.exit_code == 0, result.stderr
    caller = Keys(path).caller(result.stdout.removesuffix("\n").encode())
    assert caller.comparisons_per_minute == 600
    assert caller.expires is not None
    run(path, "add", "free")
    listed = run(path, "list").stdout
    assert json.loads(path.read_text())["keys"][0]["sha256"][:8] not in listed
    lines = [line.split("\t") for line in listed.splitlines()]
    assert [line[4:] for line in lines] == [["2999-12-31T18:00:00+00:00", "600"], ["-", "-"]]


def test_only_the_owner_can_read_a_new_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "keys.json"
    before = os.umask(0)
    try:
        assert run(path, "add", "a", "--role", "judge").exit_code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(f"{path}.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602])
def test_a_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    assert run(path, "add", "a").exit_code == 0
    for arguments in (("add", "b"), ("revoke", "a")):
        path.chmod(mode)
        before = path.read_bytes()
        result = run(path, *arguments)
        assert result.exit_code == 1
        assert f"then run `chmod go-w {path}`" in one_line(result.stderr)
        assert path.read_bytes() == before
    path.chmod(mode & ~0o022)
    assert run(path, "add", "c").exit_code == 0


def test_a_file_keeps_its_mode_and_a_link_to_it_stays(tmp_path: Path, path: Path) -> None:
    path.write_text('{"keys": []}')
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert run(link, "add", "a").exit_code == 0
    assert (link.is_symlink(), names_in(path)) == (True, ["a"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_planted_lock_is_not_followed(tmp_path: Path, path: Path) -> None:
    Path(f"{path}.lock").symlink_to(tmp_path / "elsewhere")
    assert run(path, "add", "a").exit_code == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_can_be_limited_to_sets_and_a_key_without_a_role_can_read(path: Path) -> None:
    some = ("--calibration", "default", "--calibration", "other.v2")
    run(path, "add", "some", "--role", "judge", *some)
    run(path, "add", "reader")
    lines = [line.split("\t") for line in run(path, "list").stdout.splitlines()]
    assert [line[:3] for line in lines] == [
        ["some", "judge", "default,other.v2"],
        ["reader", "-", "*"],
    ]
    assert all(line[3].endswith("+00:00") for line in lines)


def test_a_revoked_key_is_gone_and_the_others_stay(path: Path) -> None:
    write_keys(path, entry("a"), entry("b"))
    result = run(path, "revoke", "a")
    assert "a is revoked" in one_line(result.stderr)
    assert "No key is left" not in one_line(result.stderr)
    assert names_in(path) == ["b"]
    assert "the service refuses everybody" in one_line(run(path, "revoke", "b").stderr)
    # The name can be used again.
    assert run(path, "add", "a", "--role", "judge").exit_code == 0


ADD = ["add", "b", "--role", "judge"]


@pytest.mark.parametrize(
    ("file", "arguments", "words"),
    [
        ("keys.json", ["add", "a", "--role", "judge"], "scope-judge keys revoke a"),
        ("keys.json", ["add", "b", "--role", "root"], "'label', 'admin' or 'metrics'"),
        ("keys.json", ["add", "b", "--role", "metrics", "--calibration", "x"], "/metrics shows"),
        ("keys.json", ["add", "../b"], "name: use up to 64 letters"),
        ("keys.json", ["add", "b\n"], "name: use up to 64 letters"),
        ("keys.json", ["add", "b" * 65], "name: use up to 64 letters"),
        ("keys.json", ["add", "b", "--calibration", "x/y"], "calibrations.0: use up to 64 letters"),
        ("keys.json", ["add", "b", "--expires", "2020-01-01"], "has passed"),
        ("keys.json", ["add", "b", "--comparisons-per-minute", "0"], "comparisons-per-minute"),
        ("keys.json", ["revoke", "b"], "has no key named b"),
        *(("broken", given, "cannot be used: Invalid JSON") for given in (ADD, ["list"])),
        (None, ["list"], "SCOPE_API_KEYS_FILE"),
        ("absent/keys.json", ["list"], "No such file"),
        ("absent/keys.json", ["revoke", "a"], "there is no key file"),
        ("broken/keys.json", ADD, "cannot be changed"),
    ],
)
def test_an_impossible_command_prints_the_reason_and_changes_nothing(
    file: str | None, arguments: list[str], words: str, path: Path
) -> None:
    before = write_keys(path, entry("a")).read_bytes()
    broken = path.with_name("broken")
    broken.write_text('{"keys": [')
    result = run(None if file is None else path.parent / file, *arguments)
    assert result.exit_code != 0
    assert words in one_line(result.stderr)
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert (path.read_bytes(), broken.read_text()) == (before, '{"keys": [')
    left = {each.name for each in path.parent.iterdir()}
    assert left <= {"keys.json", "keys.json.lock", "broken", "broken.lock"}


def test_two_processes_that_add_keys_at_once_lose_nothing(path: Path) -> None:
    # Each process prints a line when it has started, and adds ten keys after a line on stdin.
    script = (
        "import sys; from app.cli.commands import keys; from pathlib import Path; "
        "print(flush=True); sys.stdin.readline(); "
        "[keys.add(f'{sys.argv[1]}{i}', ['judge'], None, Path(sys.argv[2])) for i in range(10)]"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, letter, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for letter in "ab"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
    made = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        made += process.communicate(timeout=PATIENCE_S)[0].split()
        assert process.returncode == 0
    assert sorted(names_in(path)) == sorted(f"{letter}{i}" for letter in "ab" for i in range(10))
    keys = Keys(path)
    assert len({keys.caller(key.encode()).name for key in made}) == 20
