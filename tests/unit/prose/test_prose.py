"""The repository is in plain English; `python -m tests.unit.prose` lists the faults."""

import pytest

from tests.unit.docs.markdown import ROOT
from tests.unit.prose.checker import EXCEPTIONS, Fault, faults, faults_of, files

MOST_EXCEPTIONS = 10


def test_every_file_is_written_in_plain_english() -> None:
    paths = files()
    assert len(paths) > 500
    offenders = [str(fault) for file in paths for fault in faults_of(file)]
    assert not offenders, "\n".join(offenders)


def test_there_are_few_exceptions_and_each_is_needed() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    for path, text in EXCEPTIONS:
        found = faults(path, (ROOT / path).read_text(encoding="utf-8"))
        assert any(text in fault.text for fault in found), (path, text)


def shapes(path: str, text: str) -> list[tuple[int, str]]:
    return sorted((fault.line, fault.shape) for fault in faults(path, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What these ask for is counted.", [(1, "subject clause")]),
        ("It runs. Of a full disk it would\ntake the rest.", [(1, "subject clause")]),
        ("It runs.\nWho calls it waits.", [(2, "subject clause")]),
        ("What is alpha?", []),
        ("A table of what it does.", []),
        ("- What it does.", [(1, "subject clause")]),
        ("| name | Of the set. |", [(1, "subject clause")]),
        ("## What is done", [(1, "subject clause")]),
        ("The observer\nis told.", [(1, "is told")]),
        ("The row stands here. The +1 stands for the next judgment.", [(1, "stands")]),
        ("The later line goes before the earlier.", [(1, "goes before")]),
        ("| name | As the store's. |", [(1, "fragment")]),
        ("- How many.\n- To\n  be scored.", [(1, "fragment"), (2, "fragment")]),
        ("As the store's, it is a name. To calibrate a set with labels, post them.", []),
        ("`What stands here` and [a link](Of.md)", []),
        ("```text\nWhat stands here.\n```", []),
        ("x" * 101, [(1, "over 100 columns")]),
        ("```text\n" + "x" * 101 + "\n```", [(2, "over 100 columns")]),
        ("| " + "x " * 60 + "|", []),
        ("- [a link](" + "x" * 101 + ")", []),
    ],
)
def test_a_banned_shape_is_found_in_markdown(text: str, expected: list[tuple[int, str]]) -> None:
    assert shapes("page.md", text) == expected


PYTHON = '''\
"""Reads a file.

Args:
    name: Of the file.
"""

# The block begins here and
# stands on two lines.
x = 1  # What stands beside code
raise ValueError("what was sent is no number")
raise ValueError(f"{x} of the pairs: they are{x} told at once")
y = "Of these"
'''


def test_a_banned_shape_is_found_in_docstrings_comments_and_messages() -> None:
    expected = [
        (4, "subject clause"),
        (7, "stands"),
        (9, "subject clause"),
        (9, "stands"),
        (10, "subject clause"),
    ]
    assert shapes("app/x.py", PYTHON) == sorted(expected)
    # Strings of tests are data.
    assert shapes("tests/x.py", PYTHON) == sorted(expected[:-1])


def test_a_fault_prints_its_place() -> None:
    assert str(Fault("app/x.py", 3, "stands", "It stands.")) == "app/x.py:3: stands: It stands."
