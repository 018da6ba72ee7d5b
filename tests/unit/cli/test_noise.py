"""`scope-judge noise`: sure pairs labelled a second time, blind, and the noise that this proves."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.noise import LabelNoiseBounds
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.cli.commands import one_line, write_rows
from tests.unit.cli.label_terminal import Terminal, labelling
from tests.unit.cli.listening import listening
from tests.unit.cli.test_label import pairs

ROWS = pairs(80)
PAIRS = 12


@pytest.fixture
def url() -> Iterator[str]:
    with listening(application_of(store=MemoryStore())) as url:
        body = {"calibration": "mine", "examples": ROWS}
        httpx.post(f"{url}/calibrate", json=body).raise_for_status()
        yield url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", ROWS)


def started(file: Path, url: str, *options: str) -> AbstractContextManager[Terminal]:
    given = (str(file), "--url", url, "--name", "mine", "--pairs", str(PAIRS), *options)
    return labelling(*given, command=("noise",))


def answer(terminal: Terminal, *, wrong: int = 0, most: int = 80) -> list[int]:
    """Labels as the rows say, but the first few otherwise; returns the questions in order."""
    asked: list[int] = []
    while len(asked) < most and (shown := terminal.pair()) is not None:
        assert shown.number is not None
        agrees = len(asked) >= wrong
        wants_a = (ROWS[shown.number]["label"] == "A") == agrees
        terminal.press("1" if wants_a == ("first" in shown.left) else "2")
        asked.append(shown.number)
    return asked


def trail(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{url}/calibrations/mine/versions").json()["versions"]
    return found


def test_a_second_label_that_is_a_tie_is_no_disagreement(url: str, file: Path) -> None:
    with started(file, url, "--yes") as terminal:
        assert terminal.pair() is not None
        terminal.press("t")
        answer(terminal, wrong=1)
        told = terminal.end()
        assert terminal.process.returncode == 0, told
    # It would raise the lower bound of the noise, and a noise above the real one is unsafe.
    (change, _) = trail(url)
    assert (change["second_labels"], change["disagreements"]) == (PAIRS, 1)


def test_sure_pairs_are_asked_once_and_the_set_gets_the_lower_bound(url: str, file: Path) -> None:
    with started(file, url, "--yes") as terminal:
        asked = answer(terminal, wrong=4)
        told = terminal.end()
        assert terminal.process.returncode == 0, told
    assert len(asked) == len(set(asked)) == PAIRS
    certainty = [abs(float(row["response_a"].split()[0].partition("=")[2])) for row in ROWS]
    surest = sorted(range(80), key=lambda number: -certainty[number])[:20]
    assert set(asked) <= set(surest)
    low = LabelNoiseBounds.of(4, PAIRS).low
    assert f"The two people prefer different sides on 4 of {PAIRS} pairs." in told
    assert f"label noise {low:.4f}" in told
    (change, _) = trail(url)
    assert (change["action"], change["second_labels"], change["disagreements"]) == (
        "noise",
        PAIRS,
        4,
    )
    assert change["label_noise"] == low


def test_the_screen_is_blind_and_an_interrupted_run_goes_on_with_the_same_pairs(
    url: str, file: Path
) -> None:
    with started(file, url, "--yes") as terminal:
        begun = answer(terminal, most=5)
        shown = terminal.pair()
        assert shown is not None
        assert "label" not in shown.text.lower()
        terminal.press("q")
        assert "5 of 12 pairs have a second label" in terminal.end()
    assert len(trail(url)) == 1
    # Labels that come meanwhile change the surest quarter, and not the pairs that were drawn.
    more = [{**row, "question": f"More {row['question']}"} for row in pairs(40, seed=9)]
    httpx.post(f"{url}/calibrate", json={"calibration": "mine", "examples": more})
    with started(file, url, "--yes") as terminal:
        rest = answer(terminal)
        terminal.end()
    assert len({*begun, *rest}) == len(begun) + len(rest) == PAIRS
    assert trail(url)[0]["second_labels"] == PAIRS


def test_without_a_yes_nothing_is_set(url: str, file: Path) -> None:
    with started(file, url) as terminal:
        answer(terminal, wrong=4, most=PAIRS)
        terminal.until("[y/N]")
        terminal.press("n\r")
        assert "nothing is set" in terminal.end()
        assert terminal.process.returncode == 1
    assert len(trail(url)) == 1


def test_pairs_that_the_set_does_not_have_are_not_drawn(url: str, tmp_path: Path) -> None:
    others = [{**row, "question": f"Other {row['question']}"} for row in ROWS]
    with started(write_rows(tmp_path / "other.jsonl", others), url) as terminal:
        told = terminal.end()
        assert terminal.process.returncode == 1
    assert "0 pairs are too few" in told


def test_without_a_terminal_nobody_is_asked(file: Path) -> None:
    result = CliRunner().invoke(app, ["noise", str(file), "--name", "mine"])
    assert result.exit_code == 1
    assert "needs a terminal" in one_line(result.stderr)
