"""The ledger is the fold of the log: first uses, present labels, and nothing twice."""

import random
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.audits.entries import AuditLabel, Draw, LabelEntry
from app.audits.ledger import KEYLESS, MOST_CRITERIA, Ledger
from app.core.comparison import Criterion
from tests.unit.audits.logs import (
    EXPIRES_S,
    MARGINAL,
    PAC,
    apply,
    audit_of,
    draw_id,
    drawn,
    folded,
    labelled,
)


def uses_of(
    ledger: Ledger, criterion: Criterion = MARGINAL, write_id: str = "w1"
) -> list[tuple[bool, float]]:
    """Whether each use was accepted, and its time."""
    uses = ledger.uses(criterion.calibration, write_id)
    numbers = [number for number, each in uses.deciders.items() if each.criterion == criterion]
    rows = uses.rows()
    rows = rows[np.isin(rows["decider"], numbers)]
    return list(zip(rows["accepted"].tolist(), rows["at"].tolist(), strict=True))


def test_an_audit_has_the_first_entry_of_its_draw() -> None:
    audit = audit_of(folded(drawn(7), drawn(7, criterion=PAC, at=9.0, accepted=False)), 7)
    assert audit.draw == drawn(7)
    assert (audit.position, audit.expires_at) == (1, 9.0 + EXPIRES_S)
    assert (audit.label, audit.labelled_at, audit.labelled_by) == (None, None, None)


def test_each_criterion_and_each_version_has_its_own_uses_of_one_draw() -> None:
    again = drawn(1, criterion=PAC, at=2.0, accepted=False)
    newer = drawn(1, write_id="w2", version=2, at=3.0)
    other = replace(PAC, delta=0.05)
    entries = (drawn(1), again, newer, drawn(1, criterion=other, at=2.5))
    ledger = folded(*entries, *entries)
    assert uses_of(ledger) == [(True, 1.0)]
    assert uses_of(ledger, PAC) == [(False, 2.0)]
    assert uses_of(ledger, write_id="w2") == [(True, 3.0)]
    assert uses_of(ledger, other) == [(True, 2.5)]
    deciders = ledger.uses("default", "w1").deciders.values()
    assert [decider.criterion for decider in deciders] == [MARGINAL, PAC, other]
    assert len(ledger) == 1


def test_draws_under_the_first_64_criteria_of_a_version_count() -> None:
    criteria = [replace(MARGINAL, alpha=k / 200) for k in range(1, 101)]
    ledger = folded(*(drawn(1, criterion=each) for each in criteria))
    deciders = ledger.uses("default", "w1").deciders.values()
    assert [decider.criterion for decider in deciders] == criteria[:MOST_CRITERIA]
    assert [ledger.counts(drawn(1, criterion=each).decider) for each in criteria] == (
        [True] * MOST_CRITERIA + [False] * (100 - MOST_CRITERIA)
    )
    # A comparison that a race or an earlier release drew under another criterion keeps its label.
    apply(ledger, drawn(2, criterion=criteria[-1]))
    apply(ledger, labelled(2, "B"))
    assert (audit_of(ledger, 2).label, audit_of(ledger, 2).draw.decider.criterion) == (
        "B",
        criteria[-1],
    )
    assert uses_of(ledger, criteria[-1]) == []
    # Other versions and other sets have places of their own.
    for other in (drawn(1, write_id="w2"), drawn(1, calibration="other")):
        assert ledger.room(other.decider, None) == MOST_CRITERIA
        apply(ledger, other)
        assert ledger.counts(other.decider)


def test_a_key_begins_at_most_half_of_the_criteria() -> None:
    criteria = [replace(MARGINAL, alpha=k / 200) for k in range(1, 41)]
    ledger = folded(*(drawn(1, criterion=each, by="greedy") for each in criteria[:32]))
    version = drawn(1).decider
    assert [ledger.room(version, key) for key in ("greedy", "other", KEYLESS)] == [0, 32, 32]
    # Entries of a race count all the same: every replica folds the log alike.
    apply(ledger, drawn(1, criterion=criteria[32], by="greedy"))
    assert ledger.counts(drawn(1, criterion=criteria[32]).decider)
    assert ledger.room(version, "other") == 31


def test_a_correction_replaces_the_label_and_keeps_its_time() -> None:
    ledger = folded(drawn(1), labelled(1, "A", at=10.0), labelled(1, "tie", at=20.0, by="bob"))
    audit = audit_of(ledger, 1)
    assert (audit.label, audit.labelled_at, audit.labelled_by) == ("tie", 10.0, "bob")


MIRRORED: list[tuple[AuditLabel, AuditLabel]] = [
    ("A", "B"),
    ("B", "A"),
    ("tie", "tie"),
    ("none", "none"),
]


@pytest.mark.parametrize(("label", "mirrored"), MIRRORED)
def test_a_label_in_the_other_order_is_mirrored(label: AuditLabel, mirrored: AuditLabel) -> None:
    ledger = folded(drawn(1), drawn(1, id=draw_id(1, mirrored=True)))
    assert len(ledger) == 1
    apply(ledger, labelled(1, label, mirrored=True))
    assert audit_of(ledger, 1).label == audit_of(ledger, 1).label_of(draw_id(1)) == mirrored
    assert audit_of(ledger, 1).label_of(draw_id(1, mirrored=True)) == label
    apply(ledger, labelled(1, label))
    assert audit_of(ledger, 1).label == label


def test_an_entry_that_was_applied_before_changes_nothing() -> None:
    ledger = folded(drawn(1), labelled(1, "A"), labelled(1, "B"))
    ledger.apply(2, labelled(1, "A").text, labelled(1, "A"))
    assert audit_of(ledger, 1).label == "B"
    assert ledger.position == 3


def test_an_entry_that_cannot_be_parsed_only_takes_its_position() -> None:
    ledger = folded(drawn(1))
    ledger.apply(2, "no entry", None)
    apply(ledger, drawn(2))
    assert (ledger.position, ledger.last_text) == (3, drawn(2).text)
    assert [audit.draw.id for audit in ledger.audits()] == [draw_id(1), draw_id(2)]


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


def pages(ledger: Ledger, **wanted: Any) -> list[list[int]]:
    """Positions of the audits on pages of at most three, at 20 seconds."""
    collected, after = list[list[int]](), wanted.pop("after", 0)
    while after is not None:
        choice = {"calibration": None, "status": None, "may_use": lambda _: True, **wanted}
        page = ledger.page(after=after, limit=3, now=20.0, **choice)
        audits = list(page.audits)
        collected.append([audit.position for audit in audits])
        after = page.next_after
        for audit in audits:
            assert choice["status"] in (None, audit.status(20.0))
    return collected


def test_a_thread_can_read_the_audits_of_a_page_while_labels_arrive() -> None:
    ledger = folded(drawn(1), drawn(2))
    page = ledger.page(
        calibration=None, status=None, after=0, limit=2, may_use=lambda _: True, now=20.0
    )
    assert iter(page.audits) is page.audits, "not made on the event loop"
    ledger.apply(3, "", LabelEntry(id=draw_id(1), label="A", by="k", at=20.0, reason=None))
    assert [audit.label for audit in page.audits] == [None, None]


def test_pages_hold_each_audit_of_a_set_once_oldest_first() -> None:
    entries = [drawn(i, calibration="even" if i % 2 == 0 else "odd") for i in range(1, 11)]
    ledger = folded(*entries, drawn(2, calibration="even", criterion=PAC))
    assert [audit.position for audit in ledger.audits()] == list(range(1, 11))
    assert [audit.position for audit in ledger.audits("even")] == [2, 4, 6, 8, 10]
    assert pages(ledger) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert pages(ledger, after=7) == [[8, 9, 10]]
    for evens in (
        pages(ledger, calibration="even"),
        pages(ledger, may_use=lambda name: name == "even"),
    ):
        assert evens == [[2, 4, 6], [8, 10]]
    assert list(ledger.audits("unknown")) == []
    for nothing in (
        pages(ledger, calibration="unknown"),
        pages(ledger, may_use=lambda _: False),
        pages(ledger, status="labelled"),
        pages(ledger, after=10),
        pages(folded()),
    ):
        assert nothing == [[]]


def test_a_draw_expires_after_its_last_use_unless_it_is_labeled() -> None:
    early = -EXPIRES_S
    ledger = folded(
        drawn(1, at=early),
        drawn(1, criterion=PAC, at=early + 20.0),
        drawn(2, at=early + 19.9),
        drawn(3, at=early),
        labelled(3, "A"),
    )
    assert pages(ledger, status="open") == [[1]]
    assert pages(ledger, status="expired") == [[3]]
    assert pages(ledger, status="labelled") == [[4]]
    statuses = [audit_of(ledger, number).status(20.0) for number in range(1, 4)]
    assert statuses == ["open", "expired", "labelled"]


def test_a_copy_for_another_thread_never_changes() -> None:
    ledger = folded(*(drawn(number) for number in range(1, 4)))
    audits, uses = ledger.audits(), ledger.uses("default", "w1")
    before = uses.rows()
    apply(ledger, labelled(1, "A"))
    for number in range(4, 200):
        apply(ledger, drawn(number))
    apply(ledger, labelled(2, "B"))
    assert [audit.label for audit in audits] == [None, None, None]
    assert uses.rows().tolist() == before.tolist()
    assert len(before) == 3


def test_the_event_loop_copies_only_the_labels_of_the_uses() -> None:
    ledger = folded(*(drawn(number) for number in range(10_000)))
    tracemalloc.start()
    uses = ledger.uses("default", "w1")
    of_loop, _ = tracemalloc.get_traced_memory()
    rows = uses.rows()
    tracemalloc.stop()
    # A label has a byte, and its time has eight.
    assert of_loop / 10_000 < 10
    assert len(rows) == 10_000


class NaiveLedger:
    """The fold as the contract says it, with dicts of entries."""

    def __init__(self) -> None:
        self.uses: dict[tuple[Criterion, str], dict[str, tuple[bool, float]]] = {}
        self.first: dict[str, Draw] = {}
        self.labels: dict[str, AuditLabel] = {}

    def apply(self, entry: Draw | LabelEntry) -> None:
        pair = entry.id[:-1]
        if isinstance(entry, Draw):
            self.first.setdefault(pair, entry)
            use = (entry.decider.criterion, entry.decider.write_id)
            self.uses.setdefault(use, {}).setdefault(pair, (entry.accepted, entry.at))
        elif pair in self.first:
            same = self.first[pair].id == entry.id
            other = dict(MIRRORED)
            self.labels[pair] = entry.label if same else other[entry.label]


@pytest.mark.parametrize("seed", range(20))
def test_the_tables_agree_with_a_naive_fold(seed: int) -> None:
    chance = random.Random(seed)
    ledger, naive = folded(), NaiveLedger()
    for position in range(1, 400):
        number, mirrored = chance.randrange(40), chance.random() < 0.3
        entry: Draw | LabelEntry = labelled(number, chance.choice(MIRRORED)[0], mirrored=mirrored)
        if chance.random() < 0.6:
            entry = drawn(
                number,
                id=draw_id(number, mirrored=mirrored),
                calibration=f"set {number % 3}",
                write_id=chance.choice("ab"),
                criterion=chance.choice((MARGINAL, PAC)),
                accepted=chance.random() < 0.5,
                at=float(position),
            )
        apply(ledger, entry)
        naive.apply(entry)
    assert [audit.draw for audit in ledger.audits()] == list(naive.first.values())
    labels = {audit.draw.id[:-1]: audit.label for audit in ledger.audits()}
    assert labels == {pair: naive.labels.get(pair) for pair in naive.first}
    for (criterion, write_id), uses in naive.uses.items():
        assert uses_of(ledger, criterion, write_id) == list(uses.values())


def test_a_draw_takes_less_than_half_a_kilobyte() -> None:
    draws = [drawn(number) for number in range(10_000)]
    tracemalloc.start()
    ledger = folded()
    before, _ = tracemalloc.get_traced_memory()
    for position, draw in enumerate(draws, 1):
        ledger.apply(position, "", draw)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / 10_000 < 500
