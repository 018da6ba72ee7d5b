"""Tests of `scope-judge judge FILE --out X`: no result is lost, whatever happens to the run."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.problems import comparison
from tests.unit.cli.commands import one_line, rows_of
from tests.unit.cli.judging_service import (
    Service,
    be_busy_once,
    be_without_store_once,
    expected,
    interrupt,
    judged,
    judgment,
    leave_once,
    numbers,
    pairs_in,
    partial_of,
    problem,
    refuse,
)
from tests.unit.clients.planned import Act

EARLIER = '{"of": "an earlier run"}\n'


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scope_judge.exchange._FIRST_PAUSE_S", 0.01)


@pytest.mark.parametrize("good_batches", [0, 1, 2])
@pytest.mark.parametrize("then", [refuse, interrupt])
def test_a_stopped_run_goes_on_with_the_rest(then: Act, good_batches: int, tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    result = judged(Service(good_batches, then), file, out=out)
    assert result.exit_code == (130 if then is interrupt else 1)
    assert "Traceback" not in result.stderr
    assert not out.exists()
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    # Ctrl-C may come between an answer and its line.
    missing = len(service.asked) - (6 - good_batches)
    assert missing == 0 or (missing == 1 and then is interrupt)
    assert numbers(service) == list(range(good_batches - missing, 6))
    assert rows_of(out.read_text()) == expected(file)
    assert not partial_of(out).exists()


def test_it_goes_on_by_content_and_not_by_place(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    assert judged(Service(4), file, out=out).exit_code == 1
    lines = file.read_text().splitlines()
    new = json.dumps(comparison(id="new", question="q" * 50))
    file.write_text("\n".join([new, *reversed(lines)]) + "\n")
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert numbers(service) == [49, 5, 4]
    assert rows_of(out.read_text()) == expected(file)


@pytest.mark.parametrize("then", [leave_once, be_busy_once, be_without_store_once])
def test_a_service_that_comes_back_is_waited_for(then: Act, tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    result = judged(Service(1, then), file, out=out)
    assert result.exit_code == 0, result.stderr
    assert "waiting for the service" in result.stderr
    assert rows_of(out.read_text()) == expected(file)


def test_a_result_that_is_there_is_only_replaced_on_request(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    out.write_text(EARLIER)
    out.chmod(0o640)
    service = Service()
    result = judged(service, file, out=out)
    assert result.exit_code == 1
    assert f"{out} already exists" in result.stderr
    assert out.read_text() == EARLIER
    assert service.batches == 0
    assert judged(Service(), file, "--overwrite", out=out).exit_code == 0
    assert rows_of(out.read_text()) == expected(file)
    assert stat.S_IMODE(out.stat().st_mode) == 0o640


def test_results_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    assert judged(Service(4), file, out=out).exit_code == 1
    result = judged(Service(), file, "--alpha", "0.2", out=out)
    assert result.exit_code == 1
    assert "4 results of a run with other settings (criterion)" in result.stderr
    other = Service()
    other.info["fingerprint"] = "e" * 64
    assert "other settings (judge)" in judged(other, file, out=out).stderr
    service = Service()
    assert judged(service, file, "--alpha", "0.2", "--overwrite", out=out).exit_code == 0
    assert len(service.asked) == 6


@pytest.mark.parametrize("name", ["pairs.jsonl", "link.jsonl"])
def test_the_input_file_is_never_overwritten(name: str, tmp_path: Path) -> None:
    file = pairs_in(tmp_path)
    (tmp_path / "link.jsonl").symlink_to(file)
    before, service = file.read_text(), Service()
    result = judged(service, file, "--overwrite", out=tmp_path / name)
    assert result.exit_code == 1
    assert "would overwrite the file that is judged" in result.stderr
    assert file.read_text() == before
    assert service.batches == 0


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("absent/x.jsonl", "there is no folder"),
        ("folder", "is not a regular file"),
        ("out.xls", "must end in"),
    ],
)
def test_an_unwritable_output_is_reported_before_anything_is_judged(
    out: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    service = Service()
    result = judged(service, pairs_in(tmp_path), out=tmp_path / out)
    assert result.exit_code == 1
    assert words in result.stderr
    assert service.batches == 0


@pytest.mark.parametrize("code", ["calibration_not_found", "labels_missing"])
def test_a_run_that_cannot_judge_anything_stops_at_once_and_says_why(
    code: str, tmp_path: Path
) -> None:
    error = problem(code, "there is no calibration 'x'")
    service = Service(result=lambda item: {"id": None, "error": error})
    result = judged(service, pairs_in(tmp_path), out=tmp_path / "out.jsonl")
    assert result.exit_code == 1
    assert result.stderr.count("there is no calibration 'x'") == 1
    assert "resume" not in result.stderr
    assert service.batches == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_an_error_of_the_run_is_no_result_of_a_row(tmp_path: Path) -> None:
    # Somebody deletes the calibration while the run is in progress.
    error = problem("calibration_not_found", "there is no calibration 'default'")
    results = iter([*([None] * 3), *([error] * 3)])

    def result(item: dict[str, Any]) -> dict[str, Any]:
        wrong = next(results)
        return judgment(item) if wrong is None else {"id": None, "error": wrong}

    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    stopped = judged(Service(result=result), file, out=out)
    assert stopped.exit_code == 1
    assert "there is no calibration 'default'" in stopped.stderr
    assert "scope-judge calibrate FILE --name NAME" in one_line(stopped.stderr)
    assert not out.exists()
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert numbers(service) == [3, 4, 5]
    assert rows_of(out.read_text()) == expected(file)
