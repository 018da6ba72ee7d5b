"""The figures of speed on the pages are those of docs/measured/bench.json."""

from pathlib import Path

import pytest

from docs.tools import make_speed_tables
from tests.benchmarks import code
from tests.benchmarks.code import code_hash, files_of
from tests.benchmarks.measured import FigureFile
from tests.benchmarks.measurement import Figure
from tests.benchmarks.suite import NAMES

RUN = {
    "made": "2026-11-22T14:00:00+00:00",
    "commit": "abc1234def",
    "repeats": 5,
    "quick": False,
    "machine": {"cpu": "x", "cores": 2, "memory_gib": 8.0, "load_before_average": 0.1},
    "versions": {"python": "3.11"},
}


def test_the_page_has_the_measured_figures() -> None:
    written, right = make_speed_tables.PAGE.read_text(encoding="utf-8"), make_speed_tables.page()
    assert _without_marks(written) == _without_marks(right), f"run: {make_speed_tables.COMMAND}"


def _without_marks(page: str) -> str:
    """The words of a page; a mark of age changes where its line wraps."""
    return " ".join(page.split()).replace(make_speed_tables.MARK, "")


def test_a_figure_is_marked_when_its_code_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FigureFile(tmp_path / "bench.json")
    figure = Figure("http-scripted", "comparisons/s", (20_000.0, 21_000.0), (), target=3000)
    file.take(figure, RUN)
    assert "20,500/s" in make_speed_tables.table(file)
    assert make_speed_tables.MARK not in make_speed_tables.table(file)
    assert [*make_speed_tables.sentences(file)] == [
        "- One process answers 20,500 comparisons a second if the judge costs nothing."
    ]
    monkeypatch.setattr(make_speed_tables, "code_hash", lambda name: "another")
    assert f"`abc1234`{make_speed_tables.MARK} |" in make_speed_tables.table(file)
    assert next(make_speed_tables.sentences(file)).endswith(make_speed_tables.MARK)


@pytest.mark.parametrize(
    ("ours", "cells"), [(2.0, ["1.00", "≤ 1.05"]), (3.0, ["**1.50**", "≤ 1.05"])]
)
def test_a_ratio_is_shown_beside_its_aim_and_bold_if_it_misses_it(
    ours: float, cells: list[str], tmp_path: Path
) -> None:
    file = FigureFile(tmp_path / "bench.json")
    file.take(Figure("memory", "MiB", (ours,), (2.0,), target=1.05, at_most=True), RUN)
    (row,) = (x for x in make_speed_tables.table(file).splitlines() if "memory" in x)
    assert [cell.strip() for cell in row.split("|")[4:6]] == cells


def test_every_figure_of_the_page_has_words_and_every_figure_has_code() -> None:
    assert set(make_speed_tables.LABELS) <= set(NAMES)
    assert {name for names in make_speed_tables.SENTENCES for name in names} <= set(
        make_speed_tables.LABELS
    )
    for name in NAMES:
        assert len(files_of(name)) > 5, name
        assert all(file.is_file() for file in files_of(name))


def test_every_pattern_of_measured_code_finds_a_file() -> None:
    patterns = {pattern for own in code.FILES.values() for pattern in own}
    assert [x for x in patterns if not [*code.ROOT.glob(x.lstrip("!"))]] == []


def test_a_hash_depends_on_the_code_of_its_figure_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "ROOT", tmp_path)
    client, service = tmp_path / "clients/python/scope_judge/a.py", tmp_path / "app/main.py"
    for file in (client, service):
        file.parent.mkdir(parents=True)
        file.write_text("one")
    before = code_hash("client-batch"), code_hash("http-scripted")
    client.write_text("two")
    assert code_hash("client-batch") != before[0]
    assert code_hash("http-scripted") == before[1]
