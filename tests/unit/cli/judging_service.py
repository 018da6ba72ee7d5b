"""A fake service for `scope-judge judge FILE`, and the files that it judges."""

import json
import os
import signal
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from app.api.answers.making import AGE_HEADER
from app.cli import app
from tests.unit.api.problems import comparison
from tests.unit.cli.commands import rows_of, write_rows
from tests.unit.clients import planned
from tests.unit.clients.planned import INFO, serving

runner = CliRunner()


class Answering(BaseHTTPRequestHandler):
    """Answers like the service, until the planned end."""

    server: "Service"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        limits = {"max_batch": 1, "max_body_bytes": 2**23, "max_prompt_tokens": 100}
        judge = {"judge": "demo", "fingerprint": self.server.fingerprint}
        self._send(200, {**INFO, "limits": limits, **judge})

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
        self._send(200, {"results": [self.server.result({"question": "old"})]}, {AGE_HEADER: "12"})

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
    return {**planned.judgment(item), "p_bar": len(item["question"]) / 100}


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
        then: Callable[[Answering], None] = Answering.refuse,
        result: Callable[[dict[str, Any]], dict[str, Any]] = judgment,
    ) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.good_batches, self.then, self.batches = good_batches, then, 0
        self.result = result
        self.asked: list[dict[str, Any]] = []
        self.fingerprint = "f" * 64

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def pairs_in(folder: Path, count: int = 6, **fields: Any) -> Path:
    """Makes a file of comparisons, each with a question of its own."""
    rows = [comparison(id=i, **{"question": "q" * (i + 1), **fields}) for i in range(count)]
    return write_rows(folder / "pairs.jsonl", rows)


def judged(
    service: Service, file: Path | str, *options: str, out: Path | str | None = None
) -> Result:
    """Judges a file with this service, which takes one pair at a time."""
    written = [] if out is None else ["--out", str(out)]
    arguments = ["judge", str(file), *written, "--url", service.url, *options]
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
