"""The demo pairs: an independent solver checks every label."""

import itertools
import json
import re
import string

import pytest

from app.demo.pairs import FAMILIES, DemoSets, Pair, Task, demo_sets, is_held_out, pairs
from app.settings import DEMO_FOLDER


def answers(family: str, question: str) -> str:
    """The right answer, computed from the text of the question alone."""
    numbers = [int(found) for found in re.findall(r"\d+", question)]
    word = question.split()[-1].rstrip("?")
    if family == "parity":
        return "odd" if str(numbers[0])[-1] in "13579" else "even"
    if family == "larger":
        return str(sorted(numbers)[-1])
    if family == "copy":
        return word
    if family == "letter":
        return word[0] if " first " in question else word[-1]
    if family == "alphabet":
        found = re.search(r"the (second )?letter (after|before) (.) in", question)
        assert found
        step = (2 if found[1] else 1) * (1 if found[2] == "after" else -1)
        return string.ascii_lowercase[string.ascii_lowercase.index(found[3]) + step]
    if family == "sort":
        return ", ".join(sorted((str(n) for n in numbers), key=int))
    if family == "count":
        found = re.search(r"letter (.) in (.+)\?", question)
        assert found
        return str(len(found[2]) - len(found[2].replace(found[1], "")))
    if family == "reverse":
        return "".join(reversed(word))
    assert family in ("sum", "difference")
    return str(numbers[0] + numbers[1] if family == "sum" else numbers[0] - numbers[1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("held_out", [True, False])
def test_exactly_the_labeled_response_is_right(family: str, held_out: bool) -> None:
    stream = pairs(7, held_out=held_out, families=(family,))
    for pair in itertools.islice(stream, 500):
        right, wrong = pair.response_a, pair.response_b
        if pair.label == "B":
            right, wrong = wrong, right
        assert right == answers(family, pair.question)
        assert wrong != right
        assert is_held_out(Task(pair.question, right, wrong)) == held_out


def identity(pair: Pair) -> tuple[str, ...]:
    return (pair.question, *sorted((pair.response_a, pair.response_b)))


def test_the_sets_are_disjoint_and_held_out_from_training() -> None:
    sets = demo_sets()
    assert [len(chosen) for chosen in sets] == [600, 400, 2000]
    everything = [identity(pair) for chosen in sets for pair in chosen]
    assert len(set(everything)) == 3000
    assert all(is_held_out(Task(question, *both)) for question, *both in everything)


def test_labels_are_balanced_in_every_set() -> None:
    for chosen in demo_sets():
        assert sum(pair.label == "A" for pair in chosen) * 2 == len(chosen)


def test_the_shipped_files_agree_with_the_program() -> None:
    sets: DemoSets = demo_sets()
    for name, chosen in (("calibrate", sets.calibrate), ("try", sets.trial)):
        lines = (DEMO_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [pair._asdict() for pair in chosen]
