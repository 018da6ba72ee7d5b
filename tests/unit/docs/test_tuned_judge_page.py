"""docs/measured/tuned-judge.md has the tables of docs/measured/tuned-judge.json."""

import json

from tests.tuned_judge.page import NUMBERS, PAGE, tables
from tests.tuned_judge.pairs import SEEN, UNSEEN


def test_the_tables_have_the_measured_figures_of_both_judges_and_every_family() -> None:
    measured = json.loads(NUMBERS.read_text(encoding="utf-8"))
    assert tables(measured) in PAGE.read_text(encoding="utf-8")
    for sets in measured["judges"].values():
        assert set(sets["seen"]["families"]) == set(SEEN)
        assert set(sets["unseen"]["families"]) == set(UNSEEN)
