"""An acknowledged result survives, and results of another run are never mixed in."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequestError
from app.files.journal import Journal

SETTINGS = {"alpha": 0.1, "judge": "x"}


def kept(file: Path, settings: dict[str, Any] = SETTINGS) -> dict[str, Any]:
    with Journal(file, settings) as journal:
        return dict(journal.results)


def test_results_are_there_in_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "out.partial"
    with Journal(file, SETTINGS) as journal:
        journal.append("a", {"verdict": "A"})
        journal.append("b", {"error": {"code": "\u00e9"}})
    with Journal(file, SETTINGS) as journal:
        journal.append("c", {"verdict": "B"})
    assert kept(file) == {
        "a": {"verdict": "A"},
        "b": {"error": {"code": "\u00e9"}},
        "c": {"verdict": "B"},
    }


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_off_is_dropped_and_the_others_kept(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "out.partial"
    with Journal(file, SETTINGS) as journal:
        journal.append("a", {"verdict": "A"})
        journal.append("b", {"verdict": "B", "padding": "x" * 60})
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - cut)
    assert kept(file) == {"a": {"verdict": "A"}}
    with Journal(file, SETTINGS) as journal:
        journal.append("b", {"verdict": "B"})
    assert set(kept(file)) == {"a", "b"}


@pytest.mark.parametrize("size", [0, 1, 10, 25, 40])
def test_a_first_line_that_was_cut_off_begins_anew(tmp_path: Path, size: int) -> None:
    file = tmp_path / "out.partial"
    with Journal(file, SETTINGS) as journal:
        journal.append("a", {})
    with file.open("r+b") as opened:
        opened.truncate(size)
    with Journal(file, SETTINGS) as journal:
        assert journal.results == {}
        journal.append("b", {})
    assert kept(file) == {"b": {}}


def test_a_journal_without_results_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "out.partial"
    assert kept(file) == {}
    assert not file.exists()


def test_other_settings_are_refused_and_named_unless_they_replace(tmp_path: Path) -> None:
    file = tmp_path / "out.partial"
    with Journal(file, SETTINGS) as journal:
        journal.append("a", {})
    before = file.read_bytes()
    with pytest.raises(InvalidRequestError, match=r"1 results .* settings \(alpha, more\)"):
        Journal(file, {"alpha": 0.2, "judge": "x", "more": 1})
    assert file.read_bytes() == before
    with Journal(file, SETTINGS, replace=True) as journal:
        assert journal.results == {"a": {}}
    with Journal(file, {"alpha": 0.2}, replace=True) as journal:
        assert journal.results == {}
    assert kept(file, {"alpha": 0.2}) == {}


@pytest.mark.parametrize(
    "content", [b"my notes", b"my notes\n", b"{}\n", b'{"scope_judge_run": {}}\n{}\n']
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "out.partial"
    file.write_bytes(content)
    with pytest.raises(InvalidRequestError):
        Journal(file, {})
    assert file.read_bytes() == content


def test_two_runs_do_not_write_one_journal(tmp_path: Path) -> None:
    file = tmp_path / "out.partial"
    with (
        Journal(file, SETTINGS),
        pytest.raises(InvalidRequestError, match="is being written by another process"),
    ):
        Journal(file, SETTINGS)
    kept(file)


def test_a_device_and_a_symlink_are_refused(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for file, reason in ((Path("/dev/full"), "a regular file"), (tmp_path / "link", "opened")):
        with pytest.raises(InvalidRequestError, match=reason):
            Journal(file, SETTINGS)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "out.partial"
    program = (
        "import resource, signal, sys, pathlib\n"
        "from app.files.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        f"journal = Journal(pathlib.Path(sys.argv[1]), {SETTINGS!r})\n"
        "journal.append('a', {})\n"
        "journal.append('b', {'text': 'x' * 1000})\n"
    )
    command = [sys.executable, "-c", program, str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "cannot be written" in ended.stderr
    assert file.read_bytes().endswith(b"}\n")
    assert kept(file) == {"a": {}}
