"""`scope-judge audits label` without a file: the texts are those that the service keeps."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.keys import Keys
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.api.keyring import entry, header_of, key_of, write_keys
from tests.unit.api.problems import examples
from tests.unit.cli.label_terminal import Terminal, labelling
from tests.unit.cli.listening import listening
from tests.unit.cli.test_audits_label import labels, prefer_first, shown

COUNT = 4


@contextmanager
def serving(store: MemoryStore | None = None, **given: Any) -> Iterator[str]:
    """A service that draws every judgment; a new one has the set `default`."""
    application = application_of(
        store=store or MemoryStore(), **{"audit_rate": 1.0, "audit_texts": True, **given}
    )
    with listening(application) as url:
        yield url


def calibrate(url: str, headers: Any = None, **fields: Any) -> None:
    body = {"examples": examples(60), **fields}
    httpx.post(f"{url}/calibrate", json=body, headers=headers).raise_for_status()


def judge(url: str, numbers: range, headers: Any = None, **fields: Any) -> None:
    """Judges pairs whose response A begins with "first"."""
    for i in numbers:
        pair = {
            "question": f"Question {i}: which?",
            "response_a": f"quality={3 + i / 100} first",
            "response_b": "quality=0 second",
            **fields,
        }
        httpx.post(f"{url}/judge", json=pair, headers=headers).raise_for_status()


@pytest.fixture
def url() -> Iterator[str]:
    with serving() as url:
        calibrate(url)
        judge(url, range(COUNT))
        yield url


def started(
    url: str, cache: Path, *options: str, key: str | None = None
) -> AbstractContextManager[Terminal]:
    environment = {"XDG_CACHE_HOME": str(cache), "SCOPE_API_KEY": key or ""}
    return labelling("--url", url, *options, command=("audits", "label"), environment=environment)


def left_behind(cache: Path) -> list[Path]:
    return [each for each in cache.rglob("*") if each.is_file()]


def texts(url: str) -> list[Any]:
    return [each["texts"] for each in httpx.get(f"{url}/audits/texts").json()["audits"]]


def test_kept_pairs_are_labelled_blind_oldest_first_and_leave_nothing_behind(
    url: str, tmp_path: Path
) -> None:
    with started(url, tmp_path) as terminal:
        assert [prefer_first(terminal) for _ in range(COUNT)] == list(range(COUNT))
        told = terminal.end()
        assert terminal.process.returncode == 0, told
    assert f"labelled {COUNT}, closed 0" in told
    assert labels(url) == ["A"] * COUNT
    assert texts(url) == []
    assert left_behind(tmp_path) == []
    with started(url, tmp_path) as terminal:
        assert "No audit is open." in terminal.end()
        assert terminal.process.returncode == 0


def test_undo_skip_and_closing_with_a_reason_work(url: str, tmp_path: Path) -> None:
    with started(url, tmp_path) as terminal:
        assert prefer_first(terminal) == 0
        assert shown(terminal).number == 1
        terminal.press("u")
        assert shown(terminal).number == 0
        terminal.press("t")
        assert shown(terminal).number == 1
        terminal.press("n")
        terminal.until("Why can it not be labelled?")
        terminal.press("the texts are cut\r")
        assert shown(terminal).number == 2
        terminal.press("s")
        assert prefer_first(terminal) == 3
        assert "labelled 2, closed 1" in terminal.end()
    assert labels(url) == ["tie", "none", None, "A"]
    assert left_behind(tmp_path) == []
    # The skipped one is asked again.
    with started(url, tmp_path) as terminal:
        assert prefer_first(terminal) == 2
        terminal.end()
    assert labels(url) == ["tie", "none", "A", "A"]


def test_answers_before_a_kill_are_sent_by_the_next_run_and_no_text_is_on_the_disk(
    url: str, tmp_path: Path
) -> None:
    with started(url, tmp_path) as terminal:
        assert [prefer_first(terminal) for _ in range(2)] == [0, 1]
        assert shown(terminal).number == 2
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
    assert labels(url) == [None] * COUNT
    (journal,) = left_behind(tmp_path)
    assert "first" not in journal.read_text()
    with started(url, tmp_path) as terminal:
        assert [prefer_first(terminal) for _ in range(2)] == [2, 3]
        told = terminal.end()
    assert "labelled 2, closed 0" in told
    assert labels(url) == ["A"] * COUNT
    assert left_behind(tmp_path) == []


def test_a_name_limits_the_audits_to_a_set(url: str, tmp_path: Path) -> None:
    calibrate(url, calibration="other")
    judge(url, range(7, 8), calibration="other")
    with started(url, tmp_path, "--name", "other") as terminal:
        assert prefer_first(terminal) == 7
        assert "1 of 1 open audits" in terminal.end()
    # The last one has a byte that is not UTF-8.
    for name in ("../absent", "\x1b[31m", "\udc80"):
        with started(url, tmp_path, "--name", name) as terminal:
            assert "calibration" in terminal.end()
            assert "Traceback" not in terminal.output
            assert terminal.process.returncode == 1
    assert left_behind(tmp_path) == []


def test_a_conversation_is_shown_with_its_turns(tmp_path: Path) -> None:
    with serving() as url:
        calibrate(url)
        turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which?"}]
        judge(url, range(1), question=turns)
        with started(url, tmp_path) as terminal:
            text = shown(terminal).text
            assert all(each in text for each in ("[system]", "Be brief.", "[user]", "Which?"))
            terminal.press("q")
            terminal.end()


def test_a_service_without_the_setting_names_it(tmp_path: Path) -> None:
    with serving(audit_texts=False) as url:
        calibrate(url)
        judge(url, range(COUNT))
        with started(url, tmp_path) as terminal:
            told = terminal.end()
            assert terminal.process.returncode == 1
    assert f"keeps no texts of its {COUNT} open audits" in told
    assert "SCOPE_AUDIT_TEXTS=on" in told
    assert "OUT.audits.jsonl" in told


def test_draws_of_before_the_setting_are_counted(tmp_path: Path) -> None:
    store = MemoryStore()
    with serving(store, audit_texts=False) as url:
        calibrate(url)
        judge(url, range(2))
    with serving(store) as url:
        with started(url, tmp_path) as terminal:
            told = terminal.end()
            assert "none of the 2 open audits has texts" in told
            assert "your answers" not in told
            assert terminal.process.returncode == 1
        judge(url, range(2, 3))
        with started(url, tmp_path) as terminal:
            assert prefer_first(terminal) == 2
            told = terminal.end()
            assert terminal.process.returncode == 0
    assert "2 open audits have no texts" in told


def test_a_key_without_the_role_is_told_which_one_is_missing(tmp_path: Path) -> None:
    roles = (entry("all", ["judge", "calibrate"]), entry("judge", ["judge"]))
    keys = Keys(write_keys(tmp_path / "keys.json", *roles))
    with serving(keys=keys) as url:
        calibrate(url, header_of("all"))
        judge(url, range(1), header_of("all"))
        with started(url, tmp_path / "cache", key=key_of("judge")) as terminal:
            assert "calibrate" in terminal.end()
            assert terminal.process.returncode == 1
        with started(url, tmp_path / "cache", key=key_of("all")) as terminal:
            assert prefer_first(terminal) == 0
            assert "labelled 1" in terminal.end()
