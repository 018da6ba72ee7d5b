"""A fake service for `scope-judge judge FILE`, and the files that it judges."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from app.api.routing import AGE_HEADER
from app.cli import app
from tests.unit.api.problems import comparison
from tests.unit.cli.commands import rows_of, write_rows
from tests.unit.clients import planned
from tests.unit.clients.planned import Act, Handler, PlannedService, serving

runner = CliRunner()


def refuse(handler: Handler) -> None:
    planned.problem(422, "invalid_request")(handler)


def be_busy_once(handler: Handler) -> None:
    _is_back(handler)
    planned.problem(503, "draining")(handler)


def leave_once(handler: Handler) -> None:
    _is_back(handler)
    planned.hang_up(handler)


def be_without_store_once(handler: Handler) -> None:
    """Answers with thresholds that the store has not confirmed."""
    _is_back(handler)
    answer = {"results": [judgment({"question": "old"})]}
    handler.send(200, json.dumps(answer).encode(), {AGE_HEADER: "12"})


def interrupt(handler: Handler) -> None:
    # The main thread gets the signal while the command waits for this answer.
    os.kill(os.getpid(), signal.SIGINT)
    leave_once(handler)


def _is_back(handler: Handler) -> None:
    """Lets the service answer the requests after this one."""
    service = handler.server
    assert isinstance(service, Service)
    service.good_batches += 1000


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


class Service(PlannedService):
    """Answers so many batches, and then acts; a real one cannot be stopped between two requests."""

    def __init__(
        self,
        good_batches: int = 1000,
        then: Act = refuse,
        result: Callable[[dict[str, Any]], dict[str, Any]] = judgment,
    ) -> None:
        super().__init__(rule=self._answer)
        self.good_batches, self.then, self.result = good_batches, then, result
        self.batches = 0
        self.asked: list[dict[str, Any]] = []
        self.limits["max_batch"] = 1
        self.info = {"judge": "demo", "fingerprint": "f" * 64}

    def _answer(self, handler: Handler, body: dict[str, Any]) -> None:
        if "comparisons" not in body:
            # The set is read to compare the run with it, which may fail.
            planned.problem(404, "calibration_not_found")(handler)
            return
        self.batches += 1
        if self.batches > self.good_batches:
            self.then(handler)
            return
        self.asked += body["comparisons"]
        results = [self.result(item) for item in body["comparisons"]]
        handler.send(200, json.dumps({"results": results}).encode())


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
