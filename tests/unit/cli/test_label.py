"""`scope-judge label` in a terminal: the labels of pac, each asked once, whatever happens."""

import random
import re
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.cli.commands import one_line, write_rows
from tests.unit.cli.label_terminal import Terminal, labelling
from tests.unit.cli.limited_judge import BROKEN, LimitedJudge
from tests.unit.cli.listening import Disturbed, listening

ALPHA, DELTA = 0.25, 0.2
LEVEL = ("--alpha", str(ALPHA), "--delta", str(DELTA))
COUNT = 60


def pairs(count: int = COUNT, seed: int = 5) -> list[dict[str, Any]]:
    """Labelled pairs on which the scripted judge is right more often when it is more certain."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        quality = round(rng.gauss(0, 2), 3)
        right = rng.random() < (0.97 if abs(quality) > 1.2 else 0.3)
        rows.append(
            {
                "question": f"Question {i}: which?",
                "response_a": f"quality={quality} first",
                "response_b": "quality=0 second",
                "label": "A" if (quality > 0) == right else "B",
            }
        )
    return rows


ROWS = pairs()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def url(store: MemoryStore) -> Iterator[str]:
    with listening(application_of(store=store)) as url:
        yield url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The pairs without labels."""
    return written(tmp_path / "pairs.jsonl", ROWS)


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write_rows(path, [{k: v for k, v in row.items() if k != "label"} for row in rows])


def started(file: Path, url: str, *options: str) -> AbstractContextManager[Terminal]:
    return labelling(str(file), "--url", url, "--name", "mine", *LEVEL, *options)


def answer(terminal: Terminal, most: int = COUNT) -> list[int]:
    """Labels as the rows say, until the command ends; returns the questions in their order."""
    asked: list[int] = []
    while len(asked) < most and (shown := terminal.pair()) is not None:
        assert shown.number is not None
        first_is_left = "first" in shown.left
        assert first_is_left != ("first" in shown.right)
        wants_a = ROWS[shown.number]["label"] == "A"
        terminal.press("1" if wants_a == first_is_left else "2")
        asked.append(shown.number)
    return asked


def next_of(url: str) -> dict[str, Any]:
    query = {"alpha": ALPHA, "delta": DELTA}
    found: dict[str, Any] = httpx.get(f"{url}/calibrations/mine/next", params=query).json()
    return found


def labels_of(url: str) -> dict[str, str]:
    """Digest -> label of the examples that have one."""
    found = httpx.get(f"{url}/calibrations/mine/examples").json()["examples"]
    return {each["digest"]: each["label"] for each in found if each["label"] is not None}


def full_threshold(url: str) -> float | None:
    """The threshold of the same pairs with all labels."""
    body = {"calibration": "full", "examples": ROWS}
    httpx.post(f"{url}/calibrate", json=body).raise_for_status()
    query = {"alpha": ALPHA, "delta": DELTA}
    (row,) = httpx.get(f"{url}/calibrations/full", params=query).json()["requested"]
    threshold: float | None = row["threshold"]
    return threshold


def test_a_session_gives_the_threshold_of_all_labels_with_fewer(url: str, file: Path) -> None:
    with started(file, url) as terminal:
        asked = answer(terminal)
        told = terminal.end()
        assert terminal.process.returncode == 0, told
    assert 0 < len(asked) == len(set(asked)) < COUNT
    found = next_of(url)
    assert found["complete"]
    assert found["threshold"] == full_threshold(url) is not None
    assert f"{len(asked)} of your {COUNT} pairs have a label" in told
    assert f"has the threshold {found['threshold']:.6f}" in told
    assert "At most 25% of the accepted verdicts are wrong, except with probability 0.2" in told
    assert "Use these labels only for this threshold" in told
    # Every label came to the response that it was for, on whichever side that was.
    full = httpx.get(f"{url}/calibrations/full/examples").json()["examples"]
    right = {each["digest"]: each["label"] for each in full}
    given = labels_of(url)
    assert len(given) == len(asked)
    assert all(right[digest] == label for digest, label in given.items())


def test_the_screen_says_nothing_of_the_judge_and_sides_change(url: str, file: Path) -> None:
    sides = set()
    with started(file, url) as terminal:
        for _ in range(12):
            shown = terminal.pair()
            assert shown is not None
            sides.add("first" in shown.left)
            words = re.sub(r"quality=\S+", "", shown.text).lower()
            assert not re.search(r"judge|verdict|prefer|p_bar|uncertain|threshold", words)
            terminal.press("=")
    assert sides == {True, False}


@pytest.mark.parametrize("way", ["kill", "ctrl-c", "quit", "hang up"])
def test_a_session_that_ends_early_goes_on_and_asks_nothing_twice(
    way: str, url: str, file: Path
) -> None:
    with started(file, url) as terminal:
        asked = answer(terminal, most=7)
        assert terminal.pair() is not None
        if way == "kill":
            terminal.process.kill()
        elif way == "hang up":
            terminal.process.send_signal(signal.SIGHUP)
        else:
            terminal.press("q" if way == "quit" else b"\x03")
        told = terminal.end()
    if way == "ctrl-c":
        assert ".pairs.jsonl.label-mine.journal; rerun the command to resume" in told
    assert len(labels_of(url)) == (7 if way == "quit" else 0)
    with started(file, url) as terminal:
        later = answer(terminal)
        assert "has the threshold" in terminal.end()
    assert not set(asked) & set(later)
    assert len(labels_of(url)) == len(asked) + len(later)
    # A third run has nothing to ask.
    with started(file, url) as terminal:
        assert terminal.pair() is None
        assert "has the threshold" in terminal.end()


def test_without_the_service_the_answers_stay_and_are_sent_later(
    store: MemoryStore, file: Path
) -> None:
    with ExitStack() as services:
        url = services.enter_context(listening(application_of(store=store)))
        with started(file, url, "--patience", "0") as terminal:
            assert terminal.pair() is not None
            needed = next_of(url)["needed"]
            asked = answer(terminal, most=needed - 1)
            assert terminal.pair() is not None
            services.close()
            asked += answer(terminal, most=1)
            told = terminal.end()
        assert terminal.process.returncode == 1
        assert "no_connection" in told
        assert "your answers are in" in told
    with listening(application_of(store=store)) as url:
        assert not labels_of(url)
        with started(file, url) as terminal:
            later = answer(terminal)
            assert "has the threshold" in terminal.end()
        assert len(asked) == needed
        assert not set(asked) & set(later)
        assert len(labels_of(url)) == len(asked) + len(later)


def test_a_batch_of_labels_that_was_lost_is_sent_again(store: MemoryStore, file: Path) -> None:
    def lost() -> None:
        pass

    service = Disturbed(application_of(store=store), "/calibrate", at=1, then=lost, handled=True)
    with listening(service) as url:
        with started(file, url) as terminal:
            asked = answer(terminal)
            assert "has the threshold" in terminal.end()
        assert service.requests > 1
        assert len(labels_of(url)) == len(asked)
        assert next_of(url)["threshold"] == full_threshold(url)


def test_a_slow_judge_that_fails_on_a_pair_stops_nobody(tmp_path: Path) -> None:
    rows = [*ROWS[1:], {**ROWS[0], "response_a": BROKEN}]
    file = written(tmp_path / "pairs.jsonl", rows)
    with listening(application_of(LimitedJudge(most=20))) as url:
        for _ in range(2):
            # The second run sends only the pair that failed.
            with started(file, url) as terminal:
                assert terminal.pair() is not None
                for _ in range(2):
                    terminal.press("=")
                    assert terminal.pair() is not None
                terminal.press("q")
                terminal.end()
                assert terminal.process.returncode == 0
            assert "not judged: 1 pairs" in terminal.output
        assert len(labels_of(url)) == 4
        assert httpx.get(f"{url}/calibrations/mine").json()["unlabelled"] == COUNT - 5


def test_a_judge_that_fails_on_all_pairs_is_reported(tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", [{**row, "response_a": BROKEN} for row in ROWS[:3]])
    with (
        listening(application_of(LimitedJudge(most=3))) as url,
        started(file, url) as terminal,
    ):
        assert terminal.pair() is None
        told = terminal.end()
        assert terminal.process.returncode == 1
    assert "error: no pair was judged" in told
    assert "not judged: 3 pairs" in told


def test_a_label_that_the_set_has_lost_is_sent_again_and_not_asked_again(
    url: str, file: Path
) -> None:
    with started(file, url) as terminal:
        asked = answer(terminal)
        terminal.end()
    # The version with the pool alone.
    httpx.post(f"{url}/calibrations/mine/rollback", json={"version": 1}).raise_for_status()
    assert not labels_of(url)
    with started(file, url) as terminal:
        assert terminal.pair() is None
        assert "has the threshold" in terminal.end()
    assert len(labels_of(url)) == len(asked)


def test_a_skip_is_no_label_and_undo_asks_the_last_pair_again(url: str, file: Path) -> None:
    with started(file, url) as terminal:
        first = terminal.pair()
        assert first is not None
        needed = next_of(url)["needed"]
        terminal.press("1")
        second = terminal.pair()
        assert second is not None
        assert second.number != first.number
        terminal.press("u")
        again = terminal.pair()
        assert again is not None
        assert (again.number, again.left) == (first.number, first.left)
        answer(terminal, most=1)
        skipped = terminal.pair()
        assert skipped is not None
        assert skipped.number == second.number
        terminal.press("s")
        asked = answer(terminal)
        told = terminal.end()
    assert terminal.process.returncode == 0
    assert len(asked) == needed - 2
    assert skipped.number not in asked
    assert "Stopped at 1 skipped pair: a skip is not a label" in told
    assert "There is no threshold yet" in told
    assert "needs 1 more label before" in told
    # The first answer to the first pair was replaced.
    assert len(labels_of(url)) == needed - 1
    with started(file, url) as terminal:
        later = answer(terminal)
        assert "has the threshold" in terminal.end()
    assert later[0] == skipped.number
    assert next_of(url)["threshold"] == full_threshold(url)


def test_ties_are_labels_without_a_side(url: str, file: Path) -> None:
    with started(file, url) as terminal:
        shown = terminal.pair()
        assert shown is not None
        terminal.press("t")
        answer(terminal)
        assert "has the threshold" in terminal.end()
    found = httpx.get(f"{url}/calibrations/mine").json()
    assert found["pool_ties"] == 1


def test_a_long_pair_scrolls_and_a_new_size_is_noticed(url: str, tmp_path: Path) -> None:
    rows = pairs(40)
    for row in rows:
        row["response_a"] += " " + " ".join(f"word{i}" for i in range(2000)) + " last"
    with started(written(tmp_path / "long.jsonl", rows), url) as terminal:
        shown = terminal.pair()
        assert shown is not None
        assert "more below" in shown.text
        assert " last" not in shown.text
        terminal.press(b"\x1b[F")
        shown = terminal.pair()
        assert shown is not None
        assert "the end" in shown.text
        assert "last" in shown.text
        terminal.resize(20, 60)
        shown = terminal.pair()
        assert shown is not None
        assert len(shown.text.splitlines()) <= 20
        terminal.press("q")
        terminal.end()


def test_a_hostile_text_does_not_reach_the_terminal(url: str, tmp_path: Path) -> None:
    rows = pairs(40)
    for row in rows:
        row["response_b"] += "\x1b]0;owned\x07\x1b[2J\x1b[Hq: quit\u202e"
    with started(written(tmp_path / "hostile.jsonl", rows), url) as terminal:
        shown = terminal.pair()
        assert shown is not None
        assert "\\x1b]0;owned\\x07" in shown.right + shown.left
        assert "\x1b]" not in terminal.output
        terminal.press("q")
        terminal.end()


def test_the_pool_of_somebody_else_is_not_guessed(url: str, tmp_path: Path) -> None:
    bodies = [{k: v for k, v in row.items() if k != "label"} for row in ROWS]
    httpx.post(f"{url}/calibrations/mine/pool", json={"comparisons": bodies}).raise_for_status()
    with started(written(tmp_path / "some.jsonl", ROWS[::2]), url) as terminal:
        asked = answer(terminal)
        told = terminal.end()
    assert asked
    assert all(number % 2 == 0 for number in asked)
    assert "outside your files" in told


def test_a_set_with_labels_is_left_alone(url: str, file: Path) -> None:
    body = {"calibration": "mine", "examples": ROWS[:30]}
    httpx.post(f"{url}/calibrate", json=body).raise_for_status()
    with started(file, url) as terminal:
        assert terminal.pair() is None
        assert "mine already has labels" in terminal.end()
    assert httpx.get(f"{url}/calibrations/mine").json()["unlabelled"] == 0
    with started(file, url, "--add") as terminal:
        assert terminal.pair() is not None
        terminal.press("q")
        terminal.end()


def test_another_level_is_another_run(url: str, file: Path) -> None:
    with started(file, url) as terminal:
        answer(terminal, most=3)
        assert terminal.pair() is not None
        terminal.press("q")
        terminal.end()
    with started(file, url, "--alpha", "0.1", "--delta-for", "2") as terminal:
        assert terminal.pair() is None
        told = terminal.end()
    assert "a run with other settings (alpha, delta)" in told
    # Labels that the service has are not asked again.
    with started(file, url, "--overwrite") as terminal:
        assert terminal.pair() is not None
        assert next_of(url)["labelled"] == 3
        terminal.press("q")
        terminal.end()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--alpha", "1.5"], "--alpha must be between 0 and 1"),
        (["--alpha", "0.1", "--delta", "0"], "--delta must be between 0 and 1"),
        (["--alpha", "0.1", "--delta", "5e-324", "--delta-for", "9"], "cannot be divided"),
        (["--alpha", "0.1"], "it needs a terminal; `scope-judge calibrate` takes a file"),
    ],
)
def test_a_mistake_is_named(options: list[str], words: str, file: Path) -> None:
    arguments = ["label", str(file), "--name", "mine", *options]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert words in one_line(result.output)


LOOKS = ("--looks", "40,50,60", "--until-coverage")


def test_planned_looks_end_at_the_first_that_suffices(url: str, file: Path) -> None:
    with started(file, url, *LOOKS, "0.05") as terminal:
        asked = answer(terminal)
        told = terminal.end()
        assert terminal.process.returncode == 0, told
    found = next_of(url)
    last = [size for size in (40, 50, 60) if f"at {size} pairs:" in told][-1]
    assert found["looks"]["taken"][-1]["size"] == found["n"] == last
    assert (found["looks"]["alpha"], found["looks"]["delta"]) == (ALPHA, DELTA)
    assert found["complete"]
    assert len(asked) == len(set(asked)) <= last
    assert f"with delta {DELTA:g}" in told
    assert last == 60 or "coverage 0%" not in told.rpartition("Look ")[2].partition("wanted")[0]


def test_looks_that_were_interrupted_go_on_where_they_were(url: str, file: Path) -> None:
    with started(file, url, *LOOKS, "0.99") as terminal:
        begun = answer(terminal, most=7)
        assert terminal.pair() is not None
        terminal.press("q")
        terminal.end()
    assert len(next_of(url)["looks"]["taken"]) < 3
    with started(file, url, *LOOKS, "0.99") as terminal:
        rest = answer(terminal)
        told = terminal.end()
    assert "Look 3 of 3, at 60 pairs" in told
    assert len(next_of(url)["looks"]["taken"]) == 3
    assert len({*begun, *rest}) == len(begun) + len(rest)
    # Another plan after a look would be a choice.
    with started(file, url, "--looks", "40,60", "--until-coverage", "0.99") as terminal:
        assert "results of a run with other settings" in terminal.end()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--looks", "10,20"), "go together"),
        (("--until-coverage", "0.3"), "go together"),
        (("--looks", "20,10", "--until-coverage", "0.3"), "rising numbers"),
        (("--looks", "20", "--until-coverage", "3"), "between 0 and 1"),
        (("--looks", "20", "--until-coverage", "0.3", "--add"), "a new set"),
        (("--looks", "20", "--until-coverage", "0.3", "--delta-for", "2"), "divides delta itself"),
        (("--looks", "20,90", "--until-coverage", "0.3"), "there are only 60"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(
    options: tuple[str, ...], message: str, url: str, file: Path
) -> None:
    with started(file, url, *options) as terminal:
        assert message in terminal.end()
        assert terminal.process.returncode == 1


def test_looks_need_a_set_without_labels(url: str, file: Path) -> None:
    httpx.post(f"{url}/calibrate", json={"calibration": "mine", "examples": ROWS[:5]})
    with started(file, url, *LOOKS, "0.3") as terminal:
        assert "mine already has labels" in terminal.end()
