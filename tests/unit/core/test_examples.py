"""Examples in columns behave like a dict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.examples import Examples, LabeledExample
from app.core.preference import score_of_numbers
from tests.labeled_examples import labeled_example

digests = st.text(max_size=2)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0])
labels = st.sampled_from(["A", "B", None, "tie"])
questions = st.none() | st.sampled_from("0123456789abcdef").map(lambda digit: f"{digit}1" * 32)
maybe = st.none() | numbers
scores = st.builds(labeled_example, numbers, maybe, maybe, labels, questions)
tables = st.dictionaries(digests, scores, max_size=8)


@settings(max_examples=100)
@given(tables)
def test_examples_equal_the_mapping_that_made_them(table: dict[str, LabeledExample]) -> None:
    examples = Examples.of(table)
    assert Examples.of(examples) is examples
    # repr distinguishes -0.0 from 0.0, and different orders.
    assert repr(examples) == repr(table)
    assert (list(examples), len(examples)) == (list(table), len(table))
    for row, score in enumerate(table.values()):
        assert score_of_numbers(*examples.numbers[row].tolist()) == score.score
        masks = (examples.label_a, examples.unlabelled, examples.tied)
        assert [bool(mask[row]) for mask in masks] == [
            score.label == label for label in ("A", None, "tie")
        ]
        asked = bytes(32) if score.question is None else bytes.fromhex(score.question)
        assert examples.questions[row].tobytes() == asked
    with pytest.raises(KeyError):
        examples["absent"]


@settings(max_examples=200)
@given(tables, tables, st.sets(digests))
def test_a_change_makes_the_same_mapping(
    before: dict[str, LabeledExample], put: dict[str, LabeledExample], take: set[str]
) -> None:
    expected = {digest: example for digest, example in before.items() if digest not in take} | put
    old = Examples.of(before)
    assert old.changed(put, take) == expected
    assert repr(old) == repr(before)
