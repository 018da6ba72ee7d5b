"""The ledger is the fold of the log: first uses, present labels, and nothing twice."""

import random
import sys
import tracemalloc
from collections.abc import Sequence

import pytest

from app.core.comparison import Label
from app.service.auditing.entries import CriterionKey, DrawEntry, Entry, LabelEntry
from app.service.auditing.ledger import Draw, Ledger
from tests.unit.service.auditing.logs import MARGINAL, PAC, draw_id, drawn, folded, labelled


def draw_of(ledger: Ledger, number: int) -> Draw:
    draw = ledger.draw(draw_id(number))
    assert draw is not None
    return draw


def uses_of(
    ledger: Ledger, criterion: CriterionKey = MARGINAL, write_id: str = "w1"
) -> list[tuple[int, str, bool, float]]:
    uses = ledger.uses("default", write_id).get(criterion, ())
    return [(use.position, use.draw.id, use.accepted, use.at) for use in uses]


def test_a_draw_has_the_fields_of_its_entry() -> None:
    entry = drawn(7)
    draw = draw_of(folded(entry), 7)
    shared = set(Draw._fields) & set(DrawEntry._fields)
    assert {field: getattr(draw, field) for field in shared} == {
        field: getattr(entry, field) for field in shared
    }
    assert (draw.position, draw.first_at, draw.last_at) == (1, 7.0, 7.0)
    assert (draw.label, draw.labelled_at, draw.labelled_by) == (None, None, None)


def test_a_repeated_use_changes_nothing() -> None:
    repeated = drawn(1, at=50.0, accepted=False, gap_fwd=9.0)
    once, twice = folded(drawn(1)), folded(drawn(1), repeated)
    assert uses_of(twice) == uses_of(once) == [(1, draw_id(1), True, 1.0)]
    assert draw_of(twice, 1) == draw_of(once, 1)
    assert len(twice) == 1


def test_each_criterion_and_each_version_has_its_own_uses_of_one_draw() -> None:
    again = drawn(1, criterion=PAC, at=2.0, accepted=False)
    newer = drawn(1, write_id="w2", version=2, at=3.0)
    other = CriterionKey(0.1, "pac", 0.05)
    ledger = folded(drawn(1), again, newer, drawn(1, criterion=other, at=2.5))
    assert uses_of(ledger) == [(1, draw_id(1), True, 1.0)]
    assert uses_of(ledger, PAC) == [(2, draw_id(1), False, 2.0)]
    assert uses_of(ledger, write_id="w2") == [(3, draw_id(1), True, 3.0)]
    assert uses_of(ledger, other) == [(4, draw_id(1), True, 2.5)]
    assert set(ledger.uses("default", "w1")) == {MARGINAL, PAC, other}
    assert len(ledger) == 1
    assert (draw_of(ledger, 1).first_at, draw_of(ledger, 1).last_at) == (1.0, 3.0)


def test_uses_are_in_the_order_of_the_log_and_can_be_sliced() -> None:
    ledger = folded(*(drawn(number) for number in (3, 1, 2)))
    uses = ledger.uses("default", "w1")[MARGINAL]
    assert [use.draw.id for use in uses] == [draw_id(3), draw_id(1), draw_id(2)]
    assert uses[1:] == list(uses)[1:]
    assert uses[-1].draw.id == draw_id(2)
    with pytest.raises(IndexError):
        uses[3]


def test_a_label_before_its_draw_or_for_an_unknown_id_is_ignored() -> None:
    ledger = folded(labelled(1, "A"), drawn(1), labelled(2, "B"), LabelEntry("0" * 30, "A", "x", 1))
    assert draw_of(ledger, 1).label is None
    assert len(ledger) == 1
    assert ledger.position == 4
    assert [ledger.draw(text) for text in ("", "x", "0", draw_id(2), "0" * 31)] == [None] * 5


def test_a_correction_replaces_the_label_and_keeps_its_time() -> None:
    ledger = folded(drawn(1), labelled(1, "A", at=10.0), labelled(1, "tie", at=20.0, by="bob"))
    draw = draw_of(ledger, 1)
    assert (draw.label, draw.labelled_at, draw.labelled_by) == ("tie", 10.0, "bob")


@pytest.mark.parametrize(("label", "mirrored"), [("A", "B"), ("B", "A"), ("tie", "tie")])
def test_a_label_in_the_other_order_is_mirrored(label: Label, mirrored: Label) -> None:
    ledger = folded(drawn(1), drawn(1, id=draw_id(1, mirrored=True)))
    assert len(ledger) == 1
    ledger.apply(3, labelled(1, label, mirrored=True))
    assert draw_of(ledger, 1).label == mirrored
    assert ledger.label(draw_id(1)) == mirrored
    assert ledger.label(draw_id(1, mirrored=True)) == label
    ledger.apply(4, labelled(1, label))
    assert draw_of(ledger, 1).label == label
    assert ledger.label(draw_id(2)) is None


def test_an_entry_that_was_applied_before_changes_nothing() -> None:
    ledger = folded(drawn(1), labelled(1, "A"), labelled(1, "B"))
    ledger.apply(2, labelled(1, "A"))
    assert draw_of(ledger, 1).label == "B"
    assert ledger.position == 3


def test_an_entry_that_cannot_be_parsed_only_takes_its_position() -> None:
    ledger = folded(drawn(1), None, drawn(2))
    assert ledger.position == 3
    assert [draw.id for draw in ledger.draws()] == [draw_id(1), draw_id(2)]


def test_a_use_is_known_in_either_order() -> None:
    ledger = folded(drawn(1))
    assert ledger.knows_use(drawn(1, at=9.0))
    assert ledger.knows_use(drawn(1, id=draw_id(1, mirrored=True)))
    for other in (
        drawn(2),
        drawn(1, criterion=PAC),
        drawn(1, write_id="w2"),
        drawn(1, calibration="other"),
    ):
        assert not ledger.knows_use(other)


def test_draws_are_paged_by_position_within_a_set() -> None:
    entries = [drawn(i, calibration="even" if i % 2 == 0 else "odd") for i in range(1, 11)]
    ledger = folded(*entries, drawn(2, calibration="even", criterion=PAC))
    assert [draw.position for draw in ledger.draws()] == list(range(1, 11))
    assert [draw.position for draw in ledger.draws("even")] == [2, 4, 6, 8, 10]
    for after in range(12):
        expected = [n for n in (2, 4, 6, 8, 10) if n > after]
        assert [draw.position for draw in ledger.draws("even", after=after)] == expected
    assert list(ledger.draws("unknown")) == []


def fixed_part(draw: Draw) -> Draw:
    """A draw without what later entries change."""
    return draw._replace(last_at=0.0, label=None, labelled_at=None, labelled_by=None)


def test_a_reader_at_any_moment_of_a_change_sees_whole_draws() -> None:
    ledger, seen = Ledger(), []

    def read(*_: object) -> object:
        # Another thread may read after any line that the event loop runs.
        one, all_sets = list(ledger.draws("default")), list(ledger.draws())
        columns = ledger.columns()
        assert len({len(column) for column in columns}) == 1
        seen.append((one, all_sets))
        return read

    entries: list[Entry] = [drawn(1), labelled(1, "A"), drawn(2)]
    entries += [drawn(1, write_id="w2"), labelled(2, "tie")]
    traced = sys.gettrace()
    sys.settrace(read)  # type: ignore[arg-type]
    try:
        for position, entry in enumerate(entries, start=1):
            ledger.apply(position, entry)
    finally:
        sys.settrace(traced)
    assert len(seen) > 50
    whole = [fixed_part(draw) for draw in ledger.draws()]
    for draws in (draws for both in seen for draws in both):
        assert [fixed_part(draw) for draw in draws] == whole[: len(draws)]
        assert all((draw.label is None) == (draw.labelled_at is None) for draw in draws)


def test_a_draw_expires_after_its_last_use_unless_it_is_labelled() -> None:
    ledger = folded(drawn(1), drawn(1, criterion=PAC, at=5.0), drawn(2), labelled(2, "A"))

    def statuses(now: float) -> Sequence[str]:
        by_row = [ledger.status_of_row(row, now=now, expires_s=10.0) for row in ledger.rows()]
        assert by_row == [draw.status(now=now, expires_s=10.0) for draw in ledger.draws()]
        return by_row

    assert statuses(15.0) == ["open", "labelled"]
    assert statuses(15.1) == ["expired", "labelled"]


class NaiveLedger:
    """The fold as the contract says it, with dicts of entries."""

    def __init__(self) -> None:
        self.uses: dict[tuple[str, str, CriterionKey], dict[str, int]] = {}
        self.first: dict[str, DrawEntry] = {}
        self.labels: dict[str, Label] = {}

    def apply(self, position: int, entry: Entry) -> None:
        pair = entry.id[:-1]
        if isinstance(entry, DrawEntry):
            first = self.first.setdefault(pair, entry)
            use = (entry.calibration, entry.write_id, entry.criterion)
            self.uses.setdefault(use, {}).setdefault(first.id, position)
        elif pair in self.first:
            same = self.first[pair].id == entry.id
            other: dict[Label, Label] = {"A": "B", "B": "A", "tie": "tie"}
            self.labels[pair] = entry.label if same else other[entry.label]


@pytest.mark.parametrize("seed", range(20))
def test_the_columns_agree_with_a_naive_fold(seed: int) -> None:
    chance = random.Random(seed)
    ledger, naive = Ledger(), NaiveLedger()
    for position in range(1, 400):
        number, mirrored = chance.randrange(40), chance.random() < 0.3
        entry: Entry = labelled(number, chance.choice(("A", "B", "tie")), mirrored=mirrored)
        if chance.random() < 0.6:
            entry = drawn(
                number,
                id=draw_id(number, mirrored=mirrored),
                calibration=f"set {number % 3}",
                write_id=chance.choice("ab"),
                criterion=chance.choice((MARGINAL, PAC)),
                at=float(position),
            )
        ledger.apply(position, entry)
        naive.apply(position, entry)
    assert [draw.id for draw in ledger.draws()] == [each.id for each in naive.first.values()]
    found = {draw.id[:-1]: draw.label for draw in ledger.draws() if draw.label is not None}
    assert found == naive.labels
    for (name, write_id, criterion), uses in naive.uses.items():
        got = ledger.uses(name, write_id)[criterion]
        assert [(use.draw.id, use.position) for use in got] == list(uses.items())


def test_a_draw_takes_less_than_a_kilobyte() -> None:
    tracemalloc.start()
    ledger = Ledger()
    before, _ = tracemalloc.get_traced_memory()
    for position in range(1, 10_001):
        ledger.apply(position, drawn(position))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / 10_000 < 600
