"""`scope-judge audits label`: drawn pairs of a run, labelled blind in the order of the draws."""

import json
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.engines.scripted import ScriptedEngine, by_quality
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.cli.commands import one_line, rows_of, write_rows
from tests.unit.cli.label_terminal import Shown, Terminal, labelling
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
    return judged(url, tmp_path, range(COUNT))


def judged(url: str, folder: Path, numbers: range, *options: str) -> Path:
    rows = [
        {
            "question": f"Question {i}: which?",
            "response_a": f"quality={3 + i / 10} first",
            "response_b": "quality=0 second",
            "model": "secret",
        }
        for i in numbers
    ]
    file, out = write_rows(folder / "pairs.jsonl", rows), folder / "out.jsonl"
    arguments = ["judge", str(file), "--out", str(out), "--url", url, *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "scope-judge audits label" in one_line(result.stderr)
    return folder / "out.jsonl.audits.jsonl"


def started(drawn: Path, url: str) -> AbstractContextManager[Terminal]:
    return labelling(str(drawn), "--url", url, command=("audits", "label"))


def shown(terminal: Terminal) -> Shown:
    pair = terminal.pair()
    assert pair is not None, terminal.output
    return pair


def prefer_first(terminal: Terminal) -> int | None:
    """Prefers response A of the pair that is shown; returns the number of its question."""
    pair = shown(terminal)
    terminal.press("1" if "first" in pair.left else "2")
    return pair.number


def audits(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{url}/audits").json()["audits"]
    return found


def labels(url: str) -> list[str | None]:
    """The label of each audit, in the order of the draws."""
    return [each["label"] for each in audits(url)]


def test_a_run_keeps_the_texts_of_drawn_pairs_and_no_verdict(url: str, drawn: Path) -> None:
    rows = rows_of(drawn.read_text())
    assert [row["id"] for row in rows] == [each["id"] for each in audits(url)]
    assert {tuple(row) for row in rows} == {("id", "question", "response_a", "response_b")}
    assert [row["question"] for row in rows] == [f"Question {i}: which?" for i in range(COUNT)]


@pytest.mark.parametrize("command", ["judge", "battles", "filter"])
def test_drawn_pairs_of_an_earlier_run_are_left_out_of_a_folder(
    command: str, url: str, drawn: Path
) -> None:
    folder = drawn.parent / "folder"
    folder.mkdir()
    drawn.rename(folder / drawn.name)
    rows = {
        "judge": {"question": "Q?", "response_a": "quality=3", "response_b": "quality=1"},
        "battles": {
            "question": "Q?",
            "model_a": "one",
            "model_b": "two",
            "response_a": "quality=3",
            "response_b": "quality=1",
            "id": "1",
        },
        "filter": {"prompt": "Q?", "chosen": "quality=3", "rejected": "quality=1"},
    }
    write_rows(folder / "pairs.jsonl", [rows[command]])
    out = drawn.parent / "judged.jsonl"
    result = CliRunner().invoke(app, [command, str(folder), "--out", str(out), "--url", url])
    assert result.exit_code == 0, result.output
    assert f"{folder / drawn.name} is left out" in one_line(result.stderr)
    assert len(rows_of(out.read_text())) == 1


@pytest.mark.parametrize("command", ["battles", "filter"])
def test_battles_and_filter_keep_drawn_pairs_without_models(
    command: str, url: str, tmp_path: Path
) -> None:
    texts = {"quality=3 one", "quality=1 two"}
    one, two = sorted(texts)
    battle = {"model_a": "secret", "model_b": "other", "question": "Q?"}
    rows = {
        "battles": [{**battle, "response_a": one, "response_b": two, "id": "1"}],
        "filter": [{"prompt": "Q?", "chosen": two, "rejected": one}],
    }
    file, out = write_rows(tmp_path / "in.jsonl", rows[command]), tmp_path / "out.jsonl"
    result = CliRunner().invoke(app, [command, str(file), "--out", str(out), "--url", url])
    assert result.exit_code == 0, result.output
    (row,) = rows_of((tmp_path / "out.jsonl.audits.jsonl").read_text())
    assert set(row) == {"id", "question", "response_a", "response_b"}
    assert {row["response_a"], row["response_b"]} == texts
    assert [each["id"] for each in audits(url)] == [row["id"]]


def test_a_later_run_with_the_same_output_loses_no_drawn_pair(url: str, drawn: Path) -> None:
    before = rows_of(drawn.read_text())
    assert judged(url, drawn.parent, range(2, 6), "--overwrite") == drawn
    after = rows_of(drawn.read_text())
    assert (after[:COUNT], len(after)) == (before, 6)


def test_another_file_in_the_place_of_the_drawn_pairs_is_not_replaced(
    url: str, tmp_path: Path
) -> None:
    mine = write_rows(tmp_path / "out.jsonl.audits.jsonl", [{"id": 1}])
    text = mine.read_text()
    file = write_rows(tmp_path / "p.jsonl", [json.loads(json.dumps(examples(1)[0]))])
    file = write_rows(file, [{**rows_of(file.read_text())[0], "question": "New?"}])
    arguments = ["judge", str(file), "--out", str(tmp_path / "out.jsonl"), "--url", url]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "this is not a drawn pair" in one_line(result.stderr)
    assert mine.read_text() == text
    assert (tmp_path / "out.jsonl.partial").exists()


def test_audits_are_labelled_in_the_order_of_the_draws_without_the_judges_opinion(
    url: str, drawn: Path
) -> None:
    # The file may have any order.
    rows = rows_of(drawn.read_text())
    write_rows(drawn, rows[::-1])
    with started(drawn, url) as terminal:
        asked = [prefer_first(terminal) for _ in range(COUNT)]
        told = terminal.end()
        assert terminal.process.returncode == 0, told
    assert asked == list(range(COUNT))
    assert labels(url) == ["A"] * COUNT
    assert f"labelled {COUNT}, closed 0" in told
    assert "verdict" not in terminal.output
    assert "secret" not in terminal.output


def test_a_pair_is_closed_with_a_reason_and_undo_and_skip_work(url: str, drawn: Path) -> None:
    with started(drawn, url) as terminal:
        assert prefer_first(terminal) == 0
        assert shown(terminal).number == 1
        terminal.press("u")
        pair = shown(terminal)
        assert (pair.number, "audit 1 of 4" in pair.text) == (0, True)
        assert "n: cannot be labelled" in pair.text
        terminal.press("t")
        assert shown(terminal).number == 1
        terminal.press("n")
        terminal.until("Why can it not be labelled?")
        terminal.press("\r")
        assert shown(terminal).number == 1
        terminal.press("n")
        terminal.until("Why can it not be labelled?")
        terminal.press("the texts are cut\r")
        assert shown(terminal).number == 2
        terminal.press("s")
        assert prefer_first(terminal) == 3
        told = terminal.end()
    assert "labelled 2, closed 1" in told
    assert labels(url) == ["tie", "none", None, "A"]
    trail = httpx.get(f"{url}/calibrations/default/audit-trail").json()["entries"]
    assert [each["reason"] for each in trail] == ["the texts are cut"]
    # The skipped one is asked again.
    with started(drawn, url) as terminal:
        assert prefer_first(terminal) == 2
        terminal.end()
    assert labels(url) == ["tie", "none", "A", "A"]


def test_an_answer_that_was_taken_back_is_not_sent(url: str, drawn: Path) -> None:
    with started(drawn, url) as terminal:
        assert [prefer_first(terminal) for _ in range(2)] == [0, 1]
        assert shown(terminal).number == 2
        terminal.press("u")
        assert shown(terminal).number == 1
        terminal.press("q")
        assert "labelled 1, closed 0" in terminal.end()
    assert labels(url) == ["A", None, None, None]


def test_answers_of_a_run_with_another_judge_say_how_to_start_over(url: str, drawn: Path) -> None:
    with started(drawn, url) as terminal:
        assert prefer_first(terminal) == 0
        assert shown(terminal).number == 1
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
    other = application_of(ScriptedEngine(by_quality, judge="other"), MemoryStore())
    with listening(other) as address, started(drawn, address) as terminal:
        told = one_line(terminal.end())
        assert terminal.process.returncode == 1
    assert "other settings (judge)" in told
    assert "move the file away to start over" in told
    assert "--overwrite" not in told


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_an_answer_before_a_kill_is_sent_by_the_next_run(
    end: signal.Signals | None, url: str, drawn: Path
) -> None:
    with started(drawn, url) as terminal:
        assert [prefer_first(terminal) for _ in range(2)] == [0, 1]
        assert shown(terminal).number == 2
        if end is None:
            terminal.press("q")
            assert "2 of 4 open audits were shown" in terminal.end()
        else:
            terminal.process.send_signal(end)
            terminal.process.wait()
    with started(drawn, url) as terminal:
        assert [prefer_first(terminal) for _ in range(2)] == [2, 3]
        terminal.end()
    assert labels(url) == ["A"] * 4


def test_audits_of_other_files_are_counted(url: str, drawn: Path) -> None:
    rows = rows_of(drawn.read_text())
    write_rows(drawn, rows[1:])
    with started(drawn, url) as terminal:
        assert prefer_first(terminal) == 1
        shown(terminal)
        terminal.press("q")
        assert "1 open audits are not in these files" in terminal.end()


def test_a_pair_in_the_other_order_gets_the_label_of_its_order(url: str, drawn: Path) -> None:
    first = rows_of(drawn.read_text())[0]
    swapped = {
        "id": f"{int(first['id'], 16) ^ 1:032x}",
        "question": first["question"],
        "response_a": first["response_b"],
        "response_b": first["response_a"],
    }
    write_rows(drawn, [swapped])
    with started(drawn, url) as terminal:
        prefer_first(terminal)
        terminal.end()
    # `first` is B in the file, and A in the order of the judgment.
    assert labels(url) == ["A", None, None, None]


def test_a_pipe_cannot_label(url: str, drawn: Path) -> None:
    result = CliRunner().invoke(app, ["audits", "label", str(drawn), "--url", url])
    assert result.exit_code == 1
    assert "needs a terminal" in one_line(result.stderr)
