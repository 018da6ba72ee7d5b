"""The one check of labeled rows: each row counts once, and a swapped pair is the same pair."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.core.comparison import Comparison, Label
from app.files.checking import (
    LabeledRow,
    checked,
)

_OTHER: dict[Label, Label] = {"A": "B", "B": "A", "tie": "tie"}


def row(
    place: int,
    pair: int = 0,
    label: Label | None = "A",
    *,
    swapped: bool = False,
    problem: str | None = None,
) -> LabeledRow:
    """A row whose label is about the pair in its first order, whichever order the row has."""
    comparison = Comparison.of(f"Question {pair}?", "one", "two")
    return LabeledRow(
        place=f"line {place}",
        comparison=comparison.swapped if swapped else comparison,
        label=_OTHER[label] if swapped and label else label,
        problem=problem,
    )


def places(rows: object) -> list[str]:
    return [each.place for each in rows]  # type: ignore[attr-defined]


def test_every_kind_of_row_by_hand() -> None:
    found, report = checked(
        [
            row(1, 1, "A"),
            row(2, 2, "tie"),
            row(3, 3, None),
            row(4, 4, "A", problem="response_a is blank"),
            # The same pair in the other order, with the label that means the same response.
            row(5, 1, "A", swapped=True),
            row(6, 5, "A"),
            row(7, 5, "B", swapped=True),
            row(8, 6, "B"),
            row(9, 6, "tie"),
            # No label for a pair that has one, and for one that has none.
            row(10, 1, None),
            row(11, 3, None, swapped=True),
        ]
    )
    assert places(found) == ["line 1", "line 2"]
    assert report.sentence == (
        "11 rows: 1 usable, 1 tie, 1 unlabeled, 1 unusable, 3 repeated, 4 contradict each other"
    )
    assert report.details == [
        "unusable, 1: response_a is blank (line 4)",
        "repeated: line 5; line 10; line 11",
        "contradict each other, so that none of them counts: line 6 (A) and line 7 (B); line 8 (B) "
        "and line 9 (tie)",
    ]


def test_rows_without_texts_repeat_nothing_and_the_report_says_so() -> None:
    bare = [LabeledRow(place=str(i), label="A") for i in range(3)]
    found, report = checked(bare)
    assert found == bare
    assert report.details == ["3 without texts, so a repeated pair is not recognized"]
    own = [LabeledRow(place=str(i), label="A", unique=True) for i in range(3)]
    _, report = checked(own)
    assert report.details == []
    assert report.rows == report.usable == 3


def test_the_first_rows_of_the_most_frequent_reasons_are_named() -> None:
    rows = [row(i, i, problem=f"reason {i % 5}") for i in range(20)]
    rows += [row(20, 20, problem="frequent") for _ in range(5)]
    _, report = checked(rows)
    details = report.details
    assert details[0] == "unusable, 5: frequent (line 20; line 20; line 20; ...)"
    assert details[3] == "unusable for 3 other reasons"


def test_a_row_that_turns_out_to_be_unusable_counts_once() -> None:
    _, report = checked([row(1, 1), row(2, 2)])
    later = report.without([LabeledRow(place="line 2", problem="no judgment")])
    assert (later.rows, later.usable, later.left_out) == (2, 1, {"no judgment": 1})


labels = st.sampled_from(["A", "B", "tie", None])
some_rows = st.lists(
    st.tuples(st.integers(0, 3), labels, st.booleans(), st.sampled_from([None, None, None, "bad"])),
    max_size=12,
)


@given(some_rows)
def test_each_row_counts_once_and_the_order_of_responses_changes_nothing(
    drawn: list[tuple[int, Label | None, bool, str | None]],
) -> None:
    rows = [
        row(i, pair, label, swapped=s, problem=p) for i, (pair, label, s, p) in enumerate(drawn)
    ]
    found, report = checked(rows)
    assert report.rows == len(rows)
    assert len(found) == report.usable + report.ties
    # Naively: the labels of each pair in its first order.
    good = [(i, pair, label) for i, (pair, label, _, p) in enumerate(drawn) if p is None]
    expected = []
    for pair in dict.fromkeys(pair for _, pair, _ in good):
        said = [(i, label) for i, other, label in good if other == pair and label is not None]
        agree = all(one[1] == two[1] for one, two in pairwise(said))
        if said and agree:
            expected.append(said[0][0])
    assert places(found) == [f"line {i}" for i in expected]
    plain = [row(i, pair, label, problem=p) for i, (pair, label, _, p) in enumerate(drawn)]
    assert places(checked(plain)[0]) == places(found)
