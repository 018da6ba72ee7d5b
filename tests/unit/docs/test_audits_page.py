"""docs/measured/audits.md has the table of docs/measured/audits.json."""

from docs.tools import make_audit_figure


def test_the_table_has_the_measured_counts_of_both_settings() -> None:
    stories = make_audit_figure.read()
    page = make_audit_figure.PAGE.read_text(encoding="utf-8")
    assert make_audit_figure.table(stories) in page
    assert [story.on_alarm for story in stories] == list(make_audit_figure.MODES)
    assert all(story.points and story.phases for story in stories)
