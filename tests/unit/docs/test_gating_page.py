"""docs/measured/gating.md has the table of docs/measured/gating.json."""

import json

from docs.tools import make_gating_figure
from tests.demo_judge.gating import ALPHAS, KINDS, OPPONENTS, Row


def test_the_table_has_the_measured_figures_of_every_rule() -> None:
    measured = json.loads(make_gating_figure.NUMBERS.read_text(encoding="utf-8"))
    rows = [Row(**row) for row in measured]
    page = make_gating_figure.PAGE.read_text(encoding="utf-8")
    assert make_gating_figure.table(rows) in page
    rules = {(row.alpha, row.kind, row.opponents) for row in rows}
    assert rules == {(alpha, kind, k) for alpha in ALPHAS for kind in KINDS for k in OPPONENTS}
    assert len(rows) == len(rules)
