"""The parts of `scope-judge label`: keys, screens, sides and the journal of answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from app.cli.comparisons import Item, read_items
from app.cli.key_press import next_key
from app.cli.label_answers import SKIP, Answers, left_side
from app.cli.label_session import scrolled
from app.cli.pair_screen import (
    PairText,
    Size,
    harmless,
    label_of,
    pair_lines,
    room_for_pair,
    screen_lines,
    shown_pair,
)
from app.core.comparison import Side
from app.files.journal import Journal

SIZES = [Size(80, 24), Size(200, 60), Size(71, 10), Size(20, 5), Size(1, 1)]
LONG = "word " * 400 + "x" * 300 + "\n\n" + "日本語" * 60 + "\n\tcode\n"
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\n\u202ereversed\u2028\ud800[bold]no markup[/]\x00"


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"1", ["1"]),
        (b"\x1b[D\x1b[Cq", ["left", "right", "q"]),
        (b"\x1bOD\x1bOC", ["left", "right"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["page up", "page down", "home", "end"]),
        # Shift and an arrow, a function key, and the begin of a paste: no key of ours.
        (b"\x1b[1;2D\x1b[24~\x1b[200~", ["", "", ""]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b[D", ["escape", "left"]),
        ("é日🙂".encode(), ["é", "日", "🙂"]),
        (b"\xff1", ["", "1"]),
    ],
)
def test_what_a_terminal_sends_becomes_keys(sent: bytes, keys: list[str]) -> None:
    found = []
    while sent:
        key, sent = next_key(sent)
        found.append(key)
    assert found == keys


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
    choice: str, left: Side, label: str
) -> None:
    assert label_of(choice, left) == label
    pair = shown_pair({"question": "Which?", "response_a": "a", "response_b": "b"}, left)
    shown = {"left": pair.left, "right": pair.right}
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
    lines = pair_lines(PairText(HOSTILE + LONG, LONG, HOSTILE), size.columns)
    for first in (0, len(lines) // 2, max(0, len(lines) - room_for_pair(size))):
        screen = screen_lines(lines, "label 3; 17 until the next test", size, first)
        assert len(screen) <= size.lines
        # A wide character needs two cells, and cannot be broken.
        assert all(cell_len(line) <= max(2, size.columns) for line in screen)
        assert all(char >= " " for line in screen for char in line)


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_every_word_of_both_responses_is_on_some_line(columns: int) -> None:
    words = [f"w{i}" for i in range(300)]
    pair = PairText(" ".join(words[:100]), " ".join(words[100:200]), " ".join(words[200:]))
    shown = " ".join(pair_lines(pair, columns)).split()
    assert set(words) <= set(shown)


def test_responses_are_beside_each_other_where_there_is_room() -> None:
    pair = PairText("Which?", "one", "two")
    assert any("one" in line and "two" in line for line in pair_lines(pair, 80))
    assert not any("one" in line and "two" in line for line in pair_lines(pair, 60))


def test_a_conversation_shows_its_turns() -> None:
    turns = [{"role": "user", "content": "Hi?"}, {"role": "user", "content": "And?"}]
    fields = {"question": turns, "response_a": ["a1", "a2"], "response_b": ["b1", "b2"]}
    text = "\n".join(pair_lines(shown_pair(fields, "B"), 60))
    places = [text.index(part) for part in ("[user]", "Hi?", "And?", "LEFT", "b1", "b2", "a1")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("key", "first", "expected"),
    [
        ("down", 0, 1),
        ("up", 0, 0),
        (" ", 0, 9),
        ("page down", 85, 90),
        ("b", 20, 11),
        ("end", 0, 90),
        ("home", 50, 0),
        ("x", 5, 5),
        (None, 95, 90),
    ],
)
def test_keys_scroll_within_the_pair(key: str | None, first: int, expected: int) -> None:
    assert scrolled(key, first, total=100, room=10) == expected
    assert scrolled(key, 0, total=3, room=10) == 0


def written(folder: Path, rows: list[dict[str, Any]]) -> list[Item]:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_items([file], None, labelled=False)


def row(number: int) -> dict[str, Any]:
    return {"question": f"Question {number}?", "response_a": "yes", "response_b": "no"}


def test_answers_survive_the_process_and_keep_their_side(tmp_path: Path) -> None:
    items = written(tmp_path, [row(0), row(1), row(2), row(1), {**row(3), "response_a": 7}])
    journal = tmp_path / "journal"
    with Journal(journal, {}) as kept:
        answers = Answers(kept, items, seed=1)
        # Equal rows count once, and a row without a comparison cannot be labelled.
        assert len(answers.unknown) == 3
        answers.add_digests((pair, f"digest {i}") for i, pair in enumerate(answers.pairs))
        first, second, third = answers.pairs
        answers.record(first, "A")
        answers.record(second, SKIP)
        answers.record(third, "tie")
        answers.record(first, "B")
        answers.note_posted([third])
    # A process that was killed leaves a line that is cut off.
    journal.write_bytes(journal.read_bytes() + b'{"key": "cut')
    with Journal(journal, {}) as kept:
        answers = Answers(kept, items, seed=1)
        assert not answers.unknown
        assert list(answers.by_digest) == ["digest 0", "digest 1", "digest 2"]
        assert [answers.label(each) for each in answers.pairs] == ["B", None, "tie"]
        assert [(pair.item.key, label) for pair, label in answers.unposted] == [
            (first.item.key, "B")
        ]
        assert [each.left for each in answers.pairs] == [first.left, second.left, third.left]
        assert kept.results[first.item.key]["left"] == first.left
        # A corrected label is sent again.
        answers.record(answers.pairs[2], "A")
        assert [label for _, label in answers.unposted] == ["B", "A"]
        assert answers.given == 2
    assert "Question" not in journal.read_text()
