"""Tests of `scope-judge judge --out X`: X changes only when the run has succeeded."""

import fcntl
import json
import os
import resource
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.unit.api.problems import comparison

runner = CliRunner()
EARLIER = "the result of an earlier run\n"


class _Answering(BaseHTTPRequestHandler):
    """Answers like the service, until the planned end."""

    server: "Service"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, {"limits": {"max_batch": 100}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.batches += 1
        if self.server.batches > self.server.good_batches:
            self.server.then(self)
            return
        results = [
            {"id": item["id"], "error": {"code": "invalid_request"}}
            if item["question"] == "bad"
            else {"id": item["id"], "verdict": "A"}
            for item in body["comparisons"]
        ]
        self._send(200, {"results": results})

    def _send(self, status: int, answer: object) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self) -> None:
        self._send(422, {"code": "invalid_request", "detail": "alpha: too large"})

    def leave(self) -> None:
        self.close_connection = True

    def interrupt(self) -> None:
        # The main thread gets the signal while the command waits for this answer.
        os.kill(os.getpid(), signal.SIGINT)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Service(ThreadingHTTPServer):
    """A fake service; a real one cannot be stopped between two given requests.

    Args:
        good_batches: Number of batches that it answers.
        then: Called in place of the next answer.
    """

    def __init__(
        self,
        good_batches: int = 1000,
        then: Callable[[_Answering], None] = _Answering.refuse,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.good_batches, self.then, self.batches = good_batches, then, 0

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


def pairs_in(folder: Path, count: int = 6, **fields: Any) -> Path:
    """Makes a file of comparisons."""
    file = folder / "pairs.jsonl"
    rows = [comparison(id=i, **fields) for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def judged(service: Service, file: Path, out: Path | str, *, input: str = "") -> Result:
    """Judges a file in batches of two with this service."""
    arguments = ["judge", str(file), "--out", str(out), "--batch-size", "2", "--url", service.url]
    with serving(service):
        return runner.invoke(app, arguments, input=input)


def ids(text: str) -> list[int]:
    return [json.loads(line)["id"] for line in text.splitlines()]


def partial_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


class Stop(NamedTuple):
    """One cause of an early end of a run, and the words of its message."""

    then: Callable[[_Answering], None]
    words: str


STOPS = {
    "a refused request": Stop(_Answering.refuse, "invalid_request: alpha: too large"),
    "a service that is gone": Stop(_Answering.leave, "no answer from http://127.0.0.1"),
    "Ctrl-C": Stop(_Answering.interrupt, "the results so far are in"),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
@pytest.mark.parametrize("earlier", [EARLIER, None], ids=["over a file", "new"])
@pytest.mark.parametrize("good_batches", [0, 2])
def test_a_stopped_run_keeps_the_old_file_and_names_the_partial_results(
    stop: Stop, earlier: str | None, good_batches: int, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    if earlier is not None:
        out.write_text(earlier)
    result = judged(Service(good_batches, stop.then), pairs_in(tmp_path), out)
    assert result.exit_code not in (0, None)
    assert (out.read_text() if out.exists() else None) == earlier
    if good_batches:
        assert stop.words in result.stderr
        assert f"the results so far are in {partial_of(out)}; {out} was not " in result.stderr
        assert ids(partial_of(out).read_text()) == [0, 1, 2, 3]
    else:
        assert "partial" not in result.stderr
        assert not partial_of(out).exists()


@pytest.mark.parametrize("question", ["q", "bad"])
def test_a_finished_run_replaces_the_file_even_with_item_errors(
    question: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(EARLIER)
    out.chmod(0o640)
    # The file of an earlier run is longer than the one that this run writes.
    partial_of(out).write_text("x" * 10_000)
    result = judged(Service(), pairs_in(tmp_path, question=question), out)
    assert result.exit_code == (question == "bad")
    assert ids(out.read_text()) == list(range(6))
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert not partial_of(out).exists()


def test_a_full_disk_keeps_earlier_results(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(EARLIER)
    file = pairs_in(tmp_path, note="x" * 10_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        result = judged(Service(), file, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 1
    assert f"{out} cannot be written: File too large" in result.stderr
    assert f"the results so far are in {partial_of(out)}" in result.stderr
    assert out.read_text() == EARLIER
    assert ids("\n".join(partial_of(out).read_text().splitlines()[:2])) == [0, 1]


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target.jsonl", tmp_path / "link.jsonl"
    target.write_text(EARLIER)
    link.symlink_to(target)
    assert judged(Service(), pairs_in(tmp_path), link).exit_code == 0
    assert link.is_symlink()
    assert ids(target.read_text()) == list(range(6))


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_dev_stdout_can_be_the_output(name: str, tmp_path: Path) -> None:
    result = judged(Service(), pairs_in(tmp_path), name)
    assert result.exit_code == 0, result.stderr
    assert ids(result.stdout) == list(range(6))


def test_a_fifo_is_written_directly(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_text()))
    reader.start()
    assert judged(Service(), pairs_in(tmp_path), fifo).exit_code == 0
    reader.join()
    assert ids(received[0]) == list(range(6))
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_device_is_written_directly_and_its_error_is_reported(tmp_path: Path) -> None:
    result = judged(Service(), pairs_in(tmp_path), "/dev/full")
    assert result.exit_code == 1
    assert "/dev/full cannot be written: No space left on device" in result.stderr
    assert not Path("/dev/full.partial").exists()


@pytest.mark.parametrize("name", ["pairs.jsonl", "link", "pairs"])
def test_the_input_file_is_never_overwritten(name: str, tmp_path: Path) -> None:
    file = pairs_in(tmp_path)
    (tmp_path / "link").symlink_to(file)
    if name == "pairs":
        file = file.rename(tmp_path / "pairs.partial")
    before, service = file.read_text(), Service()
    result = judged(service, file, tmp_path / name)
    assert result.exit_code == 1
    assert "would overwrite the file that is judged" in result.stderr
    assert file.read_text() == before
    assert service.batches == 0


def test_the_file_behind_stdin_is_never_overwritten(tmp_path: Path) -> None:
    file, service = pairs_in(tmp_path), Service()
    before, kept = file.read_text(), os.dup(0)
    with file.open() as stdin:
        os.dup2(stdin.fileno(), 0)
    try:
        result = judged(service, Path("-"), file, input=before)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert result.exit_code == 1
    assert "would overwrite the file that is judged" in result.stderr
    assert file.read_text() == before


def test_two_runs_cannot_write_the_same_file(tmp_path: Path) -> None:
    out, service = tmp_path / "out.jsonl", Service()
    with partial_of(out).open("w") as other:
        other.write("of the other run\n")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        result = judged(service, pairs_in(tmp_path), out)
    assert result.exit_code == 1
    assert f"another run is writing {partial_of(out)}" in result.stderr
    assert partial_of(out).read_text() == "of the other run\n"
    assert service.batches == 0


@pytest.mark.parametrize(
    ("out", "words"),
    [("absent/x", "No such file or directory"), ("folder", "Is a directory")],
)
def test_an_unwritable_output_is_reported_before_anything_is_judged(
    out: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    service = Service()
    result = judged(service, pairs_in(tmp_path), tmp_path / out)
    assert result.exit_code == 1
    assert f"{tmp_path / out} cannot be written: {words}" in result.stderr
    assert service.batches == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(EARLIER)
    out.chmod(0o444)
    result = judged(Service(), pairs_in(tmp_path), out)
    assert "cannot be written: Permission denied" in result.stderr
    assert out.read_text() == EARLIER
