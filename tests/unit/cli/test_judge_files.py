"""Tests of `scope-judge judge FILE --out X`: every row once, whatever happens to the run."""

import csv
import fcntl
import gzip
import json
import os
import resource
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.api.responses import AGE_HEADER
from app.cli import app
from tests.patience import PATIENCE_S
from tests.unit.api.problems import comparison
from tests.unit.cli.commands import PROGRAM, rows_of, write_rows

runner = CliRunner()
EARLIER = '{"of": "an earlier run"}\n'


class _Answering(BaseHTTPRequestHandler):
    """Answers like the service, until the planned end."""

    server: "Service"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        limits = {"max_batch": 100, "max_body_bytes": 2**23}
        judge = {"judge": "demo", "fingerprint": self.server.fingerprint}
        self._send(200, {"limits": limits, **judge})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.batches += 1
        if self.server.batches > self.server.good_batches:
            self.server.then(self)
            return
        self.server.asked += body["comparisons"]
        self._send(200, {"results": [self.server.result(item) for item in body["comparisons"]]})

    def _send(self, status: int, answer: object, headers: Mapping[str, str] = {}) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self) -> None:
        self._send(422, {"code": "invalid_request", "detail": "alpha: too large"})

    def leave(self) -> None:
        # The service is back for the next request.
        self.server.good_batches += 1000
        self.close_connection = True

    def be_busy(self) -> None:
        self.server.good_batches += 1000
        self._send(503, {"code": "draining", "detail": "it is being stopped"})

    def be_without_store(self) -> None:
        """Answers once with thresholds that the store has not confirmed."""
        self.server.good_batches += 1000
        results = [self.server.result({"question": "old"})] * 2
        self._send(200, {"results": results}, {AGE_HEADER: "12"})

    def interrupt(self) -> None:
        # The main thread gets the signal while the command waits for this answer.
        os.kill(os.getpid(), signal.SIGINT)
        self.server.good_batches += 1000
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def problem(code: str, detail: str) -> dict[str, Any]:
    """An error of one comparison, as the service writes it."""
    status = {"prompt_too_long": 413, "engine_unavailable": 503, "calibration_not_found": 404}
    status["labels_missing"] = 409
    return {"code": code, "detail": detail, "status": status[code]}


def judgment(item: dict[str, Any]) -> dict[str, Any]:
    """A judgment that depends on the question, so that a mixed up row would show."""
    if item["question"] == "bad":
        return {"id": None, "error": problem("prompt_too_long", "too long")}
    return {
        "id": item.get("id"),
        "verdict": "A",
        "reason": None,
        "p_bar": len(item["question"]) / 100,
        "alpha": 0.1,
        "guarantee": "marginal",
        "delta": None,
        "calibration": {"name": "default", "version": 1, "n": 400},
    }


class Service(ThreadingHTTPServer):
    """A fake service; a real one cannot be stopped between two given requests.

    Args:
        good_batches: Number of batches that it answers.
        then: Called in place of the next answer.
        result: Makes the result of a comparison.
    """

    def __init__(
        self,
        good_batches: int = 1000,
        then: Callable[[_Answering], None] = _Answering.refuse,
        result: Callable[[dict[str, Any]], dict[str, Any]] = judgment,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.good_batches, self.then, self.batches = good_batches, then, 0
        self.result = result
        self.asked: list[dict[str, Any]] = []
        self.fingerprint = "f" * 64

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scope_judge.exchange._FIRST_PAUSE_S", 0.01)


def pairs_in(folder: Path, count: int = 6, **fields: Any) -> Path:
    """Makes a file of comparisons, each with a question of its own."""
    rows = [comparison(id=i, **{"question": "q" * (i + 1), **fields}) for i in range(count)]
    return write_rows(folder / "pairs.jsonl", rows)


def judged(
    service: Service, file: Path | str, *options: str, out: Path | str | None = None
) -> Result:
    """Judges a file in batches of two with this service."""
    written = [] if out is None else ["--out", str(out)]
    arguments = ["judge", str(file), *written, "--batch-size", "2", "--url", service.url, *options]
    with serving(service):
        return runner.invoke(app, arguments)


def numbers(service: Service) -> list[int]:
    """The comparisons that the service was asked about, by their number in the file."""
    return [len(item["question"]) - 1 for item in service.asked]


def expected(file: Path) -> list[dict[str, Any]]:
    """The rows of an undisturbed run."""
    rows = rows_of(file.read_text())
    results = [{k: v for k, v in judgment(row).items() if k != "id"} for row in rows]
    return [{**row, "judgment": result} for row, result in zip(rows, results, strict=True)]


def partial_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def test_every_row_is_there_in_order_with_its_columns(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, note={"mine": [1]}), tmp_path / "out.jsonl"
    result = judged(Service(), file, out=out)
    assert result.exit_code == 0, result.stderr
    assert rows_of(out.read_text()) == expected(file)
    assert not partial_of(out).exists()
    assert "6 rows: A 6, B 0, abstained 0, errors 0" in result.stderr
    assert "At most 10% of these verdicts are wrong" in result.stderr
    assert "400 pairs of 'default'" in result.stderr


@pytest.mark.parametrize("good_batches", [0, 1, 2])
@pytest.mark.parametrize("then", [_Answering.refuse, _Answering.interrupt])
def test_a_stopped_run_goes_on_with_the_rest(
    then: Callable[[_Answering], None], good_batches: int, tmp_path: Path
) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    result = judged(Service(good_batches, then), file, out=out)
    assert result.exit_code == (130 if then is _Answering.interrupt else 1)
    assert "Traceback" not in result.stderr
    assert not out.exists()
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert numbers(service) == list(range(2 * good_batches, 6))
    assert rows_of(out.read_text()) == expected(file)
    assert not partial_of(out).exists()


def test_it_goes_on_by_content_and_not_by_place(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    assert judged(Service(2), file, out=out).exit_code == 1
    lines = file.read_text().splitlines()
    new = json.dumps(comparison(id="new", question="q" * 50))
    file.write_text("\n".join([new, *reversed(lines)]) + "\n")
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert numbers(service) == [49, 5, 4]
    assert rows_of(out.read_text()) == expected(file)


@pytest.mark.parametrize(
    "then", [_Answering.leave, _Answering.be_busy, _Answering.be_without_store]
)
def test_a_service_that_comes_back_is_waited_for(
    then: Callable[[_Answering], None], tmp_path: Path
) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    result = judged(Service(1, then), file, out=out)
    assert result.exit_code == 0, result.stderr
    assert "waiting for the service" in result.stderr
    assert rows_of(out.read_text()) == expected(file)


def test_patience_ends(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    result = judged(Service(1, _Answering.be_busy), file, "--patience", "0", out=out)
    assert result.exit_code == 1
    assert "draining: it is being stopped" in result.stderr
    assert partial_of(out).exists()


def test_an_error_that_passes_is_no_result(tmp_path: Path) -> None:
    failed: set[str] = set()

    def result(item: dict[str, Any]) -> dict[str, Any]:
        if item["question"] not in failed:
            failed.add(item["question"])
            return {"id": 1, "error": problem("engine_unavailable", "it is gone")}
        return judgment(item)

    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    assert judged(Service(result=result), file, out=out).exit_code == 0
    assert rows_of(out.read_text()) == expected(file)


def test_kill_9_costs_no_result(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, count=20), tmp_path / "out.jsonl"
    started: list[subprocess.Popen[bytes]] = []

    kept = out.with_name(f"{out.name}.partial")

    def kill(request: _Answering) -> None:
        # The results of one request may be written while the next one is answered.
        until = time.monotonic() + PATIENCE_S
        while kept.read_bytes().count(b'"result"') < 8 and time.monotonic() < until:
            time.sleep(0.005)
        started[0].kill()
        request.close_connection = True

    service = Service(4, kill)
    command = ["judge", str(file), "--out", str(out), "--batch-size", "2", "--url", service.url]
    with serving(service):
        started.append(subprocess.Popen([*PROGRAM, *command]))
        assert started[0].wait() == -signal.SIGKILL
    assert not out.exists()
    again = Service()
    assert judged(again, file, out=out).exit_code == 0
    assert numbers(again) == list(range(8, 20))
    assert rows_of(out.read_text()) == expected(file)


@pytest.mark.parametrize("limit", [1000, 3000])
def test_a_full_disk_costs_no_result(tmp_path: Path, limit: int) -> None:
    # The journal does not fit, or the journal does and the result does not.
    file, out = pairs_in(tmp_path, note="x" * 1000), tmp_path / "out.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        result = judged(Service(), file, out=out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 1
    assert "cannot be written: " in result.stderr
    assert not out.exists()
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert len(service.asked) < 6
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


def test_an_interrupted_overwrite_leaves_the_earlier_result_and_goes_on(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    out.write_text(EARLIER)
    assert judged(Service(2), file, "--overwrite", out=out).exit_code == 1
    assert out.read_text() == EARLIER
    service = Service()
    assert judged(service, file, "--overwrite", out=out).exit_code == 0
    assert len(service.asked) == 2


def test_results_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    assert judged(Service(2), file, out=out).exit_code == 1
    result = judged(Service(), file, "--alpha", "0.2", out=out)
    assert result.exit_code == 1
    assert "4 results of a run with other settings (criterion)" in result.stderr
    other = Service()
    other.fingerprint = "e" * 64
    assert "other settings (judge)" in judged(other, file, out=out).stderr
    service = Service()
    assert judged(service, file, "--alpha", "0.2", "--overwrite", out=out).exit_code == 0
    assert len(service.asked) == 6


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target.jsonl", tmp_path / "link.jsonl"
    target.write_text(EARLIER)
    link.symlink_to(target)
    file = pairs_in(tmp_path)
    assert judged(Service(), file, "--overwrite", out=link).exit_code == 0
    assert link.is_symlink()
    assert rows_of(target.read_text()) == expected(file)


@pytest.mark.parametrize("name", [None, "-", "/dev/stdout"])
def test_results_go_to_stdout(name: str | None, tmp_path: Path) -> None:
    file = pairs_in(tmp_path)
    result = judged(Service(), file, out=name)
    assert result.exit_code == 0, result.stderr
    assert rows_of(result.stdout) == expected(file)


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


def test_a_file_that_is_no_journal_is_never_overwritten(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path), tmp_path / "out.jsonl"
    partial_of(out).write_text(EARLIER)
    result = judged(Service(), file, "--overwrite", out=out)
    assert result.exit_code == 1
    assert "was not written by this command" in result.stderr
    assert partial_of(out).read_text() == EARLIER


def test_two_runs_cannot_write_the_same_file(tmp_path: Path) -> None:
    out, service = tmp_path / "out.jsonl", Service()
    with partial_of(out).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        result = judged(service, pairs_in(tmp_path), out=out)
    assert result.exit_code == 1
    assert f"{partial_of(out)} is being written by another process" in result.stderr
    assert service.batches == 0


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("absent/x.jsonl", "there is no folder"),
        ("folder", "is not a regular file"),
        ("out.xlsx", "must end in"),
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(EARLIER)
    out.chmod(0o444)
    result = judged(Service(), pairs_in(tmp_path), "--overwrite", out=out)
    assert "cannot be written: Permission denied" in result.stderr
    assert out.read_text() == EARLIER


def test_an_input_column_never_vanishes(tmp_path: Path) -> None:
    mine = {"judgment": "mine", "verdict": "mine", "judge": "mine", "p_bar": "mine"}
    file, out = pairs_in(tmp_path, count=1, **mine), tmp_path / "out.jsonl"
    assert judged(Service(), file, out=out).exit_code == 0
    (row,) = rows_of(out.read_text())
    assert {name: row[name] for name in mine} == mine
    assert row["judgment_2"]["verdict"] == "A"
    assert judged(Service(), file, "--flat", "--overwrite", out=out).exit_code == 0
    (row,) = rows_of(out.read_text())
    assert {name: row[name] for name in mine} == mine
    assert (row["judgment_verdict"], row["judgment_p_bar"], row["reason"]) == ("A", 0.01, None)


def test_texts_can_be_left_out(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, count=1, note="mine"), tmp_path / "out.jsonl"
    assert judged(Service(), file, "--no-keep-texts", out=out).exit_code == 0
    (row,) = rows_of(out.read_text())
    assert set(row) == {"id", "note", "judgment"}


def test_equal_comparisons_are_judged_once_and_all_have_the_result(tmp_path: Path) -> None:
    rows = [{**comparison(question="q"), "mine": number} for number in range(5)]
    file, out = write_rows(tmp_path / "pairs.jsonl", rows), tmp_path / "out.jsonl"
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert len(service.asked) == 1
    assert rows_of(out.read_text()) == expected(file)


def test_several_files_of_several_shapes_are_judged(tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    pairs_in(inputs, count=2)
    with gzip.open(inputs / "dpo.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["prompt", "chosen", "rejected"], ["Which?", "good", "bad"]])
    service, out = Service(), tmp_path / "out.csv"
    result = judged(service, inputs, "--flat", out=out)
    assert result.exit_code == 0, result.stderr
    with out.open(newline="") as opened:
        found = list(csv.DictReader(opened))
    assert [row["prompt"] for row in found] == ["Which?", "", ""]
    assert [row["question"] for row in found] == ["", "q", "qq"]
    assert [row["verdict"] for row in found] == ["A"] * 3
    # A label is not sent: a judgment does not need it.
    assert service.asked[0] == {"question": "Which?", "response_a": "good", "response_b": "bad"}


def test_a_map_names_the_columns(tmp_path: Path) -> None:
    file, service = tmp_path / "x.tsv", Service()
    file.write_text("q\tx\ty\nWhich?\tgood\tbad\n")
    result = judged(service, file, "--map", "question=q,response_a=x,response_b=y")
    assert result.exit_code == 0, result.stderr
    assert service.asked == [{"question": "Which?", "response_a": "good", "response_b": "bad"}]


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("q,x\n1,2\n", (), "the columns are q, x"),
        ("q,x\n1,2\n", ("--map", "question=q"), "response_a, response_b are missing"),
        ("q,x\n1,2\n", ("--map", "q"), "FIELD=COLUMN"),
        ("q,x\n1,2\n", ("--shape", "y"), "--shape y is unknown"),
        ("q,x\n1,2\n", ("--shape", "pairs", "--map", "question=q"), "not both"),
        ("", (), "is empty"),
        (
            '{"question": "x", "response_a": "y", "response_b": "z"}\n\nno\n',
            (),
            "line 3: this is not a JSON object",
        ),
        ('{"chosen": 1, "rejected": 2}\n', (), "line 1: chosen is neither a text nor a list"),
    ],
)
def test_a_wrong_file_is_reported_before_anything_is_sent(
    content: str, options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    file, service = tmp_path / "x", Service()
    file.write_text(content)
    result = judged(service, file, *options)
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())
    assert service.batches == 0


def test_a_row_without_a_comparison_has_its_own_error(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, count=2), tmp_path / "out.jsonl"
    with file.open("a") as opened:
        opened.write('{"question": "x", "response_a": 3, "response_b": "y"}\n')
    service = Service()
    result = judged(service, file, out=out)
    assert result.exit_code == 1
    *_, last = rows_of(out.read_text())
    assert last["judgment"]["error"]["code"] == "invalid_comparison"
    assert len(service.asked) == 2
    assert "error invalid_comparison, 1: e.g." in result.stderr
    assert "1 of 3 rows got no judgment" in result.stderr


def test_errors_are_counted_with_an_example_each(tmp_path: Path) -> None:
    file, out = pairs_in(tmp_path, question="bad"), tmp_path / "out.jsonl"
    result = judged(Service(), file, out=out)
    assert result.exit_code == 1
    assert f"error prompt_too_long, 6: e.g. {file}, line 1: too long" in result.stderr
    assert "6 of 6 rows got no judgment" in result.stderr


@pytest.mark.parametrize("code", ["calibration_not_found", "labels_missing"])
def test_a_run_that_cannot_judge_anything_stops_at_once_and_says_why(
    code: str, tmp_path: Path
) -> None:
    error = problem(code, "there is no calibration 'x'")
    service = Service(result=lambda item: {"id": None, "error": error})
    result = judged(service, pairs_in(tmp_path), out=tmp_path / "out.jsonl")
    assert result.exit_code == 1
    assert result.stderr.count("there is no calibration 'x'") == 1
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
    assert not out.exists()
    service = Service()
    assert judged(service, file, out=out).exit_code == 0
    assert numbers(service) == [2, 3, 4, 5]
    assert rows_of(out.read_text()) == expected(file)


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({"calibration": "mine"}, "calibration_not_found"),
        ({"calibration": "mine"}, "labels_missing"),
        ({"alpha": 0.3}, "labels_missing"),
        ({"delta": 0.2}, "labels_missing"),
    ],
)
def test_a_row_with_a_criterion_of_its_own_has_its_own_error(
    own: dict[str, Any], code: str, tmp_path: Path
) -> None:
    error = problem(code, "the row cannot be judged")

    def result(item: dict[str, Any]) -> dict[str, Any]:
        return {"id": None, "error": error} if own.items() <= item.items() else judgment(item)

    file, out = pairs_in(tmp_path, count=2), tmp_path / "out.jsonl"
    with file.open("a") as opened:
        opened.write(json.dumps(comparison(**own)) + "\n")
    assert judged(Service(result=result), file, out=out).exit_code == 1
    *others, last = rows_of(out.read_text())
    assert [row["judgment"]["verdict"] for row in others] == ["A", "A"]
    assert last["judgment"]["error"] == error


@pytest.mark.parametrize("option", ["--flat", "--overwrite", "--no-keep-texts"])
def test_ray_refuses_options_that_it_does_not_have(option: str, tmp_path: Path) -> None:
    result = runner.invoke(app, ["judge", str(pairs_in(tmp_path)), "--ray", option])
    assert result.exit_code == 1
    assert "--ray has no --flat" in result.stderr


def test_the_address_may_be_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pairs_in(tmp_path)
    with serving(Service()) as service:
        monkeypatch.setenv("SCOPE_URL", service.url)
        found = runner.invoke(app, ["judge", str(file)])
        bulk = runner.invoke(app, ["judge", str(file), "--ray", "--alpha", "2"])
    assert found.exit_code == 0, found.stderr
    assert rows_of(found.stdout) == expected(file)
    assert "alpha" in bulk.stderr, "an address that was not typed does not forbid --ray"
