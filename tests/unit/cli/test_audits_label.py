"""`scope-judge audits label`: labels of audits in files, each of which counts once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.cli.commands import one_line, rows_of, write_rows
from tests.unit.cli.listening import listening

COUNT = 4


@pytest.fixture
def url() -> Iterator[str]:
    with listening(application_of(store=MemoryStore(), audit_rate=1.0)) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(60)}).raise_for_status()
        yield url


@pytest.fixture
def drawn(url: str, tmp_path: Path) -> Path:
    """The drawn pairs of a run."""
    rows = [
        {
            "question": f"Question {i}: which?",
            "response_a": f"quality={3 + i / 10} first",
            "response_b": "quality=0 second",
            "model": "secret",
        }
        for i in range(COUNT)
    ]
    file = write_rows(tmp_path / "pairs.jsonl", rows)
    result = run(url, "judge", file, "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 0, result.output
    assert "scope-judge audits label" in one_line(result.stderr)
    return tmp_path / "out.jsonl.audits.jsonl"


def run(url: str, *arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--url", url])


def label(url: str, *arguments: object) -> str:
    result = run(url, "audits", "label", "--yes", *arguments)
    assert result.exit_code == 0, result.output
    return one_line(result.output)


def labels(url: str) -> list[str | None]:
    """The label of each audit, in the order of the draws."""
    audits: list[dict[str, Any]] = httpx.get(f"{url}/audits").json()["audits"]
    return [audit["label"] for audit in audits]


def labelled(drawn: Path, *words: object, **more: object) -> Path:
    rows = [
        {**row, "label": word, **more}
        for row, word in zip(rows_of(drawn.read_text()), words, strict=True)
    ]
    return write_rows(drawn.with_name("labelled.jsonl"), rows)


def test_the_drawn_pairs_have_neither_verdict_nor_model(drawn: Path) -> None:
    rows = rows_of(drawn.read_text())
    columns = ["audit", "question", "response_a", "response_b"]
    assert [list(row) for row in rows] == [columns] * COUNT


def test_a_rerun_keeps_the_labels_that_people_have_written(url: str, drawn: Path) -> None:
    labeled = [{**row, "label": "B"} for row in rows_of(drawn.read_text())[:2]]
    # A row without an id stays, too.
    write_rows(drawn, [*labeled, {"note": "mine"}, {"note": "also mine"}])
    pairs, out = drawn.with_name("pairs.jsonl"), drawn.with_name("out.jsonl")
    assert run(url, "judge", pairs, "--out", out, "--overwrite").exit_code == 0
    rows = rows_of(drawn.read_text())
    assert rows[:4] == [*labeled, {"note": "mine"}, {"note": "also mine"}]
    assert len(rows) == 4 + COUNT - 2


def test_labels_of_a_file_count_once(url: str, drawn: Path) -> None:
    file = labelled(drawn, "A", "B", "tie", None)
    assert "labeled 3, closed 0, labels replaced 0, sent before 0" in label(url, file)
    assert "labeled 0, closed 0, labels replaced 0, sent before 3" in label(url, file)
    assert sorted(map(str, labels(url))) == ["A", "B", "None", "tie"]


def test_an_audit_that_nobody_can_label_is_closed_with_a_reason(url: str, drawn: Path) -> None:
    told = label(url, labelled(drawn, "A", "none", "A", "A", reason="not in English"))
    assert "labeled 3, closed 0" in told
    assert "labeled 0, closed 1" in told
    refused = run(url, "audits", "label", "--yes", labelled(drawn, "A", "none", "A", "A"))
    assert refused.exit_code == 1
    assert "labelled.jsonl, line 2: the label none needs a reason" in one_line(refused.output)


def test_a_map_names_columns_and_words(url: str, drawn: Path) -> None:
    rows = [
        {"id": row["audit"], "Better?": word}
        for row, word in zip(rows_of(drawn.read_text()), ("1", "2", "1", "1"), strict=True)
    ]
    file = write_rows(drawn.with_name("own.jsonl"), rows)
    refused = run(url, "audits", "label", file, "--yes")
    assert refused.exit_code == 1
    told = "there is no column audit or label: the columns are id, Better?; name them with --map "
    assert f"{told}audit=COLUMN,label=COLUMN" in one_line(refused.output)
    told = label(url, file, "--map", "audit=id,label=Better?,A=1,B=2")
    assert "labeled 4" in told
    assert sorted(map(str, labels(url))) == ["A", "A", "A", "B"]


def test_the_id_of_the_other_order_means_the_other_side(url: str, drawn: Path) -> None:
    (first, *_) = rows_of(drawn.read_text())
    other = f"{int(first['audit'], 16) ^ 1:032x}"
    rows = [{"audit": first["audit"], "label": "A"}, {"audit": other, "label": "B"}]
    told = label(url, write_rows(drawn.with_name("both.jsonl"), rows))
    assert "labeled 1, closed 0" in told
    page = httpx.get(f"{url}/audits").json()["audits"]
    (found,) = [audit for audit in page if int(audit["id"], 16) >> 1 == int(other, 16) >> 1]
    assert found["label"] == ("A" if found["id"] == first["audit"] else "B")


def test_contradicting_labels_are_refused(url: str, drawn: Path) -> None:
    (first, *_) = rows_of(drawn.read_text())
    rows = [{"audit": first["audit"], "label": word} for word in ("A", "tie")]
    file = write_rows(drawn.with_name("twice.jsonl"), rows)
    refused = run(url, "audits", "label", file, "--yes")
    assert (refused.exit_code, labels(url)) == (1, [None] * COUNT)
    told = f"{file}, line 1 and {file}, line 2 answer differently about the same pair"
    assert told in one_line(refused.output)


def test_a_file_without_a_usable_label_sends_nothing(url: str, drawn: Path) -> None:
    for words, said in (([None] * 4, "no label to send"), (["A", "maybe", "B", "A"], "'maybe'")):
        refused = run(url, "audits", "label", "--yes", labelled(drawn, *words))
        assert (refused.exit_code, said in one_line(refused.output)) == (1, True)
    assert labels(url) == [None] * COUNT


def test_nothing_is_sent_without_an_answer(url: str, drawn: Path) -> None:
    refused = run(url, "audits", "label", labelled(drawn, *"AAAA"))
    assert refused.exit_code == 1, json.dumps(refused.output)
    assert labels(url) == [None] * COUNT
