"""The parts of `scope-judge label`: screens, sides, order and the journal of answers."""

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from app.cli.labelling.screen import (
    Size,
    harmless,
    pair_lines,
    room_for_pair,
    screen_lines,
    scrolled,
)
from app.core.comparison import Side
from app.files.journal import Journal
from app.service.labelling.answers import SKIP, Answers
from app.service.labelling.pairs import BlindPair, Choice, PairText, left_side
from app.service.labelling.session import LabelSession

SIZES = [
    Size(columns=80, lines=24),
    Size(columns=200, lines=60),
    Size(columns=71, lines=10),
    Size(columns=20, lines=5),
    Size(columns=1, lines=1),
]
LONG = "word " * 400 + "x" * 300 + "\n\n" + "日本語" * 60 + "\n\tcode\n"
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\n\u202ereversed\u2028\ud800[bold]no markup[/]\x00"


@pytest.mark.parametrize(
    ("choice", "left", "label"),
    [
        ("left", "A", "A"),
        ("right", "A", "B"),
        ("left", "B", "B"),
        ("right", "B", "A"),
        ("tie", "A", "tie"),
        ("tie", "B", "tie"),
    ],
)
def test_a_choice_is_a_label_of_the_response_that_was_on_that_side(
    choice: Choice, left: Side, label: str
) -> None:
    fields = {"question": "Which?", "response_a": "a", "response_b": "b"}
    pair = BlindPair(key="k", fields=fields, left=left)
    assert pair.label_of(choice) == label
    shown = {"left": pair.text.left, "right": pair.text.right}
    assert choice == "tie" or shown[choice] == label.lower()


def test_sides_are_a_coin_that_falls_the_same_way_in_every_run() -> None:
    keys = [str(i) for i in range(2000)]
    sides = [left_side(7, key) for key in keys]
    assert sides == [left_side(7, key) for key in keys]
    assert 900 < sides.count("A") < 1100
    other = [left_side(8, key) for key in keys]
    assert 900 < sum(one == two for one, two in zip(sides, other, strict=True)) < 1100


def test_a_text_cannot_steer_the_terminal() -> None:
    shown = harmless(HOSTILE)
    assert shown == (
        "\\x1b[2J\\x1b]0;title\\x07\\x9b31m\n\\u202ereversed\n\\ud800[bold]no markup[/]\\x00"
    )
    assert harmless("line\r\nnext\tcolumn") == "line\nnext\tcolumn"


@pytest.mark.parametrize("size", SIZES)
def test_a_screen_has_room_on_its_terminal(size: Size) -> None:
    lines = pair_lines(PairText(question=HOSTILE + LONG, left=LONG, right=HOSTILE), size.columns)
    for first in (0, len(lines) // 2, max(0, len(lines) - room_for_pair(size))):
        screen = screen_lines(lines, "label 3; 17 until the next test", size, first)
        assert len(screen) <= size.lines
        # A wide character needs two cells, and cannot be broken.
        assert all(cell_len(line) <= max(2, size.columns) for line in screen)
        assert all(char >= " " for line in screen for char in line)


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_every_word_of_both_responses_is_on_some_line(columns: int) -> None:
    words = [f"w{i}" for i in range(300)]
    pair = PairText(
        question=" ".join(words[:100]),
        left=" ".join(words[100:200]),
        right=" ".join(words[200:]),
    )
    shown = " ".join(pair_lines(pair, columns)).split()
    assert set(words) <= set(shown)


def test_responses_are_beside_each_other_where_there_is_room() -> None:
    pair = PairText(question="Which?", left="one", right="two")
    assert any("one" in line and "two" in line for line in pair_lines(pair, 80))
    assert not any("one" in line and "two" in line for line in pair_lines(pair, 60))


def test_a_conversation_shows_its_turns() -> None:
    turns = [{"role": "user", "content": "Hi?"}, {"role": "user", "content": "And?"}]
    fields = {"question": turns, "response_a": ["a1", "a2"], "response_b": ["b1", "b2"]}
    text = "\n".join(pair_lines(BlindPair(key="k", fields=fields, left="B").text, 60))
    places = [text.index(part) for part in ("[user]", "Hi?", "And?", "LEFT", "b1", "b2", "a1")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("step", "first", "expected"),
    [(1, 0, 1), (-1, 0, 0), (9, 85, 90), (-9, 20, 11), (100, 0, 90), (-100, 50, 0), (0, 95, 90)],
)
def test_steps_scroll_within_the_pair(step: int, first: int, expected: int) -> None:
    assert scrolled(first, step, total=100, room=10) == expected
    assert scrolled(0, step, total=3, room=10) == 0


def row(number: int) -> dict[str, Any]:
    return {"question": f"Question {number}?", "response_a": "yes", "response_b": "no"}


def test_answers_survive_the_process_and_keep_their_side(tmp_path: Path) -> None:
    pairs = [
        BlindPair(key=f"k{i}", fields=row(i), left=left_side(1, f"k{i}")) for i in (0, 1, 2, 1)
    ]
    journal = tmp_path / "journal"
    with Journal(journal, {}) as kept:
        answers = Answers(kept, pairs)
        # Equal rows count once.
        assert len(answers.pairs) == 3
        assert not answers.pooled
        answers.add_digests({f"k{i}": f"digest {i}" for i in range(3)})
        first, second, third = answers.pairs
        answers.record(first, "A")
        answers.record(second, SKIP)
        answers.record(third, "tie")
        answers.record(first, "B")
        answers.note_posted([third.key])
    # A process that was killed leaves a line that is cut off.
    journal.write_bytes(journal.read_bytes() + b'{"key": "cut')
    with Journal(journal, {}) as kept:
        answers = Answers(kept, pairs)
        assert list(answers.by_digest) == ["digest 0", "digest 1", "digest 2"]
        assert [answers.label(each) for each in answers.pairs] == ["B", None, "tie"]
        assert answers.unposted == {"k0": "B"}
        assert kept.results["k0"]["left"] == first.left
        # A corrected label is sent again.
        answers.record(answers.pairs[2], "A")
        assert answers.unposted == {"k0": "B", "k2": "A"}
        assert answers.given == 2
    assert "Question" not in journal.read_text()


def test_an_answer_that_was_taken_back_is_not_sent(tmp_path: Path) -> None:
    pairs = [BlindPair(key=f"k{i}", fields=row(i), left="A") for i in range(2)]
    with Journal(tmp_path / "journal", {}) as kept:
        answers = Answers(kept, pairs)
        answers.add_digests({"k0": "d0", "k1": "d1"})
        session = LabelSession(answers)
        session.ask(pairs)
        session.choose("left")
        session.undo()
        # The person quits here.
        assert (answers.unposted, answers.given) == ({}, 0)
        session.choose("left")
        answers.note_posted(["k0"])
        session.undo()
        # The service has this label, and keeps it until there is another one.
        assert (answers.unposted, answers.given) == ({}, 1)
        session.choose("right")
        assert answers.unposted == {"k0": "B"}


def test_undo_asks_again_and_a_skip_is_no_label(tmp_path: Path) -> None:
    pairs = [BlindPair(key=f"k{i}", fields=row(i), left="B") for i in range(3)]
    with Journal(tmp_path / "journal", {}) as kept:
        answers = Answers(kept, pairs)
        answers.add_digests({"k0": "d0", "k1": "d1", "k2": "d2"})
        session = LabelSession(answers)
        needed = session.needed(["d2", "d0", "of somebody else"])
        assert [pair.key for pair in needed.asked] == ["k2", "k0"]
        assert needed.absent == 1
        session.ask(needed.asked)
        session.undo()
        session.choose("left")
        assert answers.label(pairs[2]) == "B"
        session.undo()
        session.choose("right")
        assert answers.label(pairs[2]) == "A"
        session.skip()
        assert session.current is None
        assert session.needed(["d2", "d0"]).skipped == 2
        assert session.needed(["d2", "d0"]).dropped == ["k2"]
        assert answers.given == 1
