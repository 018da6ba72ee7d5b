"""Tests of the log: its formats, and that it never blocks the program."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from app.observability.logs import JsonFormatter, Log, LogStream, TextFormatter
from tests.patience import PATIENCE_S


def record(message: str, *, failed: bool = False) -> logging.LogRecord:
    raised = None
    if failed:
        try:
            raise ValueError("the reason")
        except ValueError:
            raised = sys.exc_info()
    made = logging.LogRecord("app", logging.WARNING, "file.py", 1, "%s", (message,), raised)
    made.created = 1769850307.5
    return made


@pytest.mark.parametrize(
    ("formatter", "line"),
    [
        (TextFormatter(), "2026-01-31T09:05:07.500Z WARNING  two\n    lines"),
        (
            JsonFormatter(),
            '{"time": "2026-01-31T09:05:07.500Z", "level": "warning", "logger": "app", '
            '"message": "two\\nlines"}',
        ),
    ],
)
def test_a_line_has_time_level_and_message(formatter: logging.Formatter, line: str) -> None:
    assert formatter.format(record("two\nlines")) == line


def test_no_text_of_a_message_steers_a_terminal_or_forges_a_line() -> None:
    message = "a\x1b]0;x\x07\x9b2J\u202e\r\n2026-01-31T09:05:07.500Z ERROR forged"
    shown = TextFormatter().format(record(message))
    assert shown.endswith(
        r"a\x1b]0;x\x07\x9b2J\u202e\r" "\n    2026-01-31T09:05:07.500Z ERROR forged"
    )
    assert json.loads(JsonFormatter().format(record(message)))["message"] == message
    assert JsonFormatter().format(record(message)).isascii()


def test_a_traceback_is_within_the_json_line() -> None:
    line = JsonFormatter().format(record("it failed", failed=True))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: the reason")


class Pipe:
    """A pipe that a log writes to."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self._logs: list[Log] = []

    def log(self, **options: int) -> Log:
        """A log that writes to this pipe."""
        self._logs.append(Log(self.writing, **options))
        return self._logs[-1]

    def close(self) -> None:
        """Closes both ends, the writing one when no thread writes to it any more."""
        os.close(self.reading)
        for log in self._logs:
            written = Event()
            log._waiting.put(written)
            assert written.wait(PATIENCE_S)
        os.close(self.writing)

    def fill(self) -> int:
        """Writes until the pipe is full; returns the number of written bytes."""
        os.set_blocking(self.writing, False)
        count = 0
        try:
            while True:
                count += os.write(self.writing, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writing, True)
            return count

    def read(self, count: int) -> str:
        """Reads so many bytes, and waits for them."""
        content = b""
        while len(content) < count:
            content += os.read(self.reading, count - len(content))
        return content.decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def lines(count: int) -> str:
    return "".join(f"line {number:4}\n" for number in range(count))


def log_lines(log: Log, count: int) -> None:
    for number in range(count):
        log.handle(logging.makeLogRecord({"msg": "line %4d", "args": (number,)}))


REPORT = "20 lines were dropped: the output was not read in time\n"


def test_lines_and_other_output_are_written_in_order(pipe: Pipe) -> None:
    log = pipe.log()
    log_lines(log, 100)
    # Characters that cannot be encoded are written as escapes, because logging must not fail.
    print("a", "b\ud800", file=LogStream(log))
    expected = lines(100) + "a b\\ud800\n"
    assert pipe.read(len(expected)) == expected
    assert log.dropped_lines == 0


def test_dropped_lines_are_counted_and_reported_once_the_reader_is_back(pipe: Pipe) -> None:
    filled = pipe.fill()
    log = pipe.log(most_waiting=10)
    log_lines(log, 1)
    # The thread has taken the first line, and waits for the reader.
    while log._waiting.qsize():
        os.sched_yield()
    log_lines(log, 30)
    assert log.dropped_lines == 20
    written = pipe.read(filled + len(lines(11)) + len(REPORT))[filled:]
    assert written == lines(1) + REPORT + lines(10)
    log_lines(log, 1)
    assert pipe.read(len(lines(1))) == lines(1)


def test_without_a_reader_each_line_is_counted_once() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log = Log(writing)
    log_lines(log, 100)
    log.finish()
    assert log.dropped_lines == 100
    os.close(writing)


def test_the_thread_waits_for_a_non_blocking_descriptor(pipe: Pipe) -> None:
    filled = pipe.fill()
    os.set_blocking(pipe.writing, False)
    log = pipe.log()
    log_lines(log, 1)
    assert pipe.read(filled + len(lines(1)))[filled:] == lines(1)


def test_a_stuck_reader_delays_the_end_once_and_not_for_ever(pipe: Pipe) -> None:
    pipe.fill()
    log = pipe.log()
    log_lines(log, 1)
    log.finish()
    # Each line after `finish` waits for the rest of the same second.
    log_lines(log, 1000)
    log.finish()


def test_a_forked_child_writes_by_itself(tmp_path: Path) -> None:
    program = (
        "import logging, os; from app.observability.logs import start_log\n"
        "start_log('info', 'text').setFormatter(None)\n"
        "if os.fork() == 0:\n"
        "    logging.error('child'); os._exit(0)\n"
        "os.wait(); logging.error('parent')"
    )
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", program], stdout=log, stderr=log, check=True)
    assert (tmp_path / "log").read_text().split() == ["child", "parent"]
