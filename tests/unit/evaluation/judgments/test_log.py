"""The log of `evaluate`: durable, without partial lines, with a single writer."""

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


def test_another_judges_answers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with JudgmentLog(file, judge="demo") as log:
        log.append([pair(1)])
    with (
        JudgmentLog(file, judge="other") as log,
        pytest.raises(InvalidRequestError, match="judgments of demo, not of other: give another"),
    ):
        log.read()


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
