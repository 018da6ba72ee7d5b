"""docs/measured/arena.md has the figures of docs/measured/arena.json."""

from docs.tools import make_arena_figure


def test_the_page_has_the_measured_figures_of_every_view() -> None:
    found = make_arena_figure.found_in(make_arena_figure.NUMBERS)
    page = make_arena_figure.PAGE.read_text(encoding="utf-8")
    assert make_arena_figure.table(found.rows) in page
    assert make_arena_figure.facts(found) in page
    labelled = {(row.view, row.labelled) for row in found.rows if row.labelled}
    rates = make_arena_figure.RATES
    assert labelled == {(view, rate) for view in ("people", "debiased") for rate in rates}
    assert {row.view for row in found.rows if not row.labelled} == {
        make_arena_figure.STRICT,
        *make_arena_figure.UNLABELLED,
    }
