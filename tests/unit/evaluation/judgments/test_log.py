"""The log of `evaluate`: durable, without partial lines, with a single writer."""

import os
import resource
from pathlib import Path

import pytest

from app.core.errors import InvalidRequestError
from app.evaluation.judgments.jsonl import judgment_line
from app.evaluation.judgments.log import JudgmentLog
from app.evaluation.judgments.record import JudgedPair


def pair(number: int, judge: str = "demo") -> JudgedPair:
    gaps = (float(number), 0.0)
    return JudgedPair(
        dataset="d",
        id=str(number),
        group=None,
        label="A",
        judge=judge,
        gaps=gaps,
        asked={"orders": "x"},
    )


def test_appended_lines_are_there_in_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with JudgmentLog(file, judge="demo") as log:
        log.append([pair(1), pair(2)])
        assert file.read_text() == judgment_line(pair(1)) + judgment_line(pair(2))
    with JudgmentLog(file, judge="demo") as log:
        log.append([pair(3)])
        assert log.read() == {("d", str(i)): pair(i) for i in (1, 2, 3)}


@pytest.mark.parametrize("cut", [1, 20, len(judgment_line(pair(2))) - 1])
def test_a_line_that_was_cut_off_is_removed(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    file.write_text(judgment_line(pair(1)) + judgment_line(pair(2))[:cut])
    with JudgmentLog(file, judge="demo") as log:
        assert log.read() == {("d", "1"): pair(1)}
        log.append([pair(2)])
        assert log.read() == {("d", "1"): pair(1), ("d", "2"): pair(2)}


def test_only_one_process_writes(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with (
        JudgmentLog(file, judge="demo"),
        pytest.raises(InvalidRequestError, match="being written by another process"),
    ):
        JudgmentLog(file, judge="demo")
    with JudgmentLog(file, judge="demo") as log:
        assert log.read() == {}


def test_another_judges_answers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with JudgmentLog(file, judge="demo") as log:
        log.append([pair(1)])
    with (
        JudgmentLog(file, judge="other") as log,
        pytest.raises(InvalidRequestError, match="judgments of demo, not of other: give another"),
    ):
        log.read()


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be opened: Is a directory"):
        JudgmentLog(tmp_path, judge="demo")


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": "1", "label": "A", "p_fwd": 0.5, "p_rev": 0.4}',
        b'{"id": "1", "label": "A", "p_fwd": 0.5, "p_rev": 0.4}\n',
        b"\x1f\x8b\x08\x00 something zipped",
        judgment_line(pair(1)).encode() + b"a note of mine",
    ],
)
def test_a_users_file_is_left_unchanged(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    file.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="was not written by evaluate"):
        JudgmentLog(file, judge="demo")
    assert file.read_bytes() == content


def test_a_child_of_a_killed_run_does_not_hold_the_file(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with JudgmentLog(file, judge="demo"):
        ready, done = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
    try:
        # The parent closed its handle, as if it were killed; the child still runs.
        with JudgmentLog(file, judge="demo") as log:
            assert log.read() == {}
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for end in (*ready, *done):
            os.close(end)


def test_a_full_disk_leaves_no_partial_line(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with JudgmentLog(file, judge="demo") as log:
        log.append([pair(1)])
        before = file.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        # A file that may not grow beyond half of the next line fails as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
        try:
            with pytest.raises(InvalidRequestError, match="cannot be written: No space left"):
                log.append([pair(2)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert file.read_bytes() == before
        log.append([pair(3)])
        assert log.read() == {("d", "1"): pair(1), ("d", "3"): pair(3)}
