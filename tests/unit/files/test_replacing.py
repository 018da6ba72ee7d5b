"""A file is replaced as a whole, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from app.files.replacing import replace_text, replacing


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("before")
    file.chmod(0o640)
    with replacing(file) as opened:
        opened.write(b"after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["out.json"]


def test_the_unfinished_file_is_new_and_closed_to_others(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "keys.json", tmp_path / "elsewhere"
    file.write_text("before")
    file.chmod(0o4640)
    planted = [tmp_path / name for name in (".keys.json.new", "keys.json.new", ".new")]
    for link in planted:
        link.symlink_to(elsewhere)
    names = set()
    for _ in range(2):
        with replacing(file) as opened:
            opened.write(b"after")
            (name,) = set(os.listdir(tmp_path)) - {file.name, *(link.name for link in planted)}
            names.add(name)
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    assert len(names) == 2
    assert not elsewhere.exists()
    # The set-user-ID bit is not taken over.
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_a_block_that_raises_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    file = tmp_path / "out.json"
    file.write_text("before")

    def fail() -> None:
        with replacing(file) as opened:
            opened.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_new_file_has_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    with replacing(tmp_path / "keys.json", mode=0o600):
        pass
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("before")
    (tmp_path / "link").symlink_to(target)
    replace_text(tmp_path / "link", "after \ud800")
    assert target.read_text() == "before"
    assert (tmp_path / "link").read_text() == "after ?"
