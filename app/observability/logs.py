"""The log of the service: lines of text or JSON objects on stderr, which never block the service.

A plain write to a pipe that nobody reads blocks forever, and blocks the event loop. Here lines wait
in a queue for a thread that writes them. While the queue is full, further lines are dropped and
counted.
"""

import atexit
import io
import json
import logging
import os
import select
import time
import traceback
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from threading import Event
from typing import Any, Literal

from app.core.printable import printable

LogFormat = Literal["text", "json"]

logger = logging.getLogger("app.observability.logs")

_MOST_LINES_WAITING = 10_000
# Longest delay of the process's end until the remaining lines are written.
_EXIT_WAIT_S = 1.0


class Log(QueueHandler):
    """A log handler that writes to a file descriptor, in order, on a daemon thread.

    The descriptor's flags are not changed, because other programs may share it.
    """

    def __init__(self, descriptor: int, *, most_waiting: int = _MOST_LINES_WAITING) -> None:
        # A `Queue` would block forever if a signal handler logs while its thread puts a line.
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        super().__init__(self._waiting)
        self._most_waiting = most_waiting
        self._deadline: float | None = None
        # Writes at once; for a process in which the thread does not run.
        self.direct = _Writer(descriptor)
        QueueListener(self._waiting, self.direct).start()

    @property
    def dropped_lines(self) -> int:
        """Number of lines that were dropped since the start."""
        return self.direct.dropped_lines

    def setFormatter(self, fmt: logging.Formatter | None) -> None:  # noqa: N802
        """Sets the format of the lines."""
        self.direct.setFormatter(fmt)

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Returns the record as it is: the thread formats it."""
        return record

    def enqueue(self, item: Any) -> None:
        """Queues a record or a text, or drops it if the queue is full."""
        if self._waiting.qsize() >= self._most_waiting:
            self.direct.refused_lines += 1
            return
        self._waiting.put(item)
        if self._deadline is not None:
            self._wait(self._deadline)

    def finish(self) -> None:
        """Waits until all lines are written, and so does each later line: one second in total."""
        if self._deadline is None:
            self._deadline = time.monotonic() + _EXIT_WAIT_S
        self._wait(self._deadline)

    def _wait(self, deadline: float) -> None:
        written = Event()
        self._waiting.put(written)
        written.wait(max(0.0, deadline - time.monotonic()))


class _Writer(logging.Handler):
    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._reported = 0
        # Counted by different threads.
        self.refused_lines = 0
        self._failed_lines = 0

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """Makes no lock: `logging.shutdown` would wait for a thread that waits for the reader."""
        self.lock = None

    @property
    def dropped_lines(self) -> int:
        return self.refused_lines + self._failed_lines

    def emit(self, item: Any) -> None:
        """Writes a record or a text; an event is set, because all before it is written."""
        if isinstance(item, Event):
            item.set()
            return
        try:
            self._write(item if isinstance(item, str) else self.format(item) + "\n")
            if (dropped := self.dropped_lines) > self._reported:
                self._write(self._report(dropped - self._reported))
                self._reported = dropped
        except OSError:
            # The reader is gone or the disk is full. Both may recover, so the thread continues.
            self._failed_lines += 1

    def _report(self, count: int) -> str:
        message = "%d lines were dropped: the output was not read in time"
        values = (logger.name, logging.WARNING, __file__, 0, message, (count,), None)
        return self.format(logging.LogRecord(*values)) + "\n"

    def _write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Another program that shares the descriptor has set O_NONBLOCK.
                select.select([], [self._descriptor], [])


class LogStream(io.TextIOBase):
    """A text stream for other output than log lines, which keeps the order of both."""

    encoding = "utf-8"

    def __init__(self, log: Log) -> None:
        self._log = log

    def isatty(self) -> bool:
        """Whether the log is a terminal."""
        return os.isatty(2)

    def write(self, text: str) -> int:
        """Queues a text."""
        self._log.enqueue(text)
        return len(text)


_log: Log | None = None


def start_log(level: str, kind: LogFormat) -> Log:
    """Sends the log of this process to stderr, on its own thread."""
    global _log
    if _log is None:
        _open_closed_descriptors()
        _log = Log(2)
        atexit.register(_log.finish)
        # The thread does not exist after a fork.
        os.register_at_fork(after_in_child=_log_directly)
    logging.root.addHandler(_log)
    _log.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    logging.getLogger("app").setLevel(level.upper())
    # The command `uvicorn` gives them handlers that write by themselves.
    logging.getLogger("uvicorn").handlers.clear()
    logging.getLogger("uvicorn").propagate = True
    # The middleware of the API writes better lines.
    logging.getLogger("uvicorn.access").handlers.clear()
    logging.getLogger("uvicorn.access").propagate = False
    return _log


def dropped_lines() -> int:
    """Number of lines that were dropped since the start."""
    return _log.dropped_lines if _log is not None else 0


def finish() -> None:
    """Call this when the process ends: the remaining lines are written, within one second."""
    if _log is not None:
        _log.finish()


def log_defect(exc: BaseException) -> None:
    """Logs the type and traceback of an unexpected error.

    The message is left out, because it may contain a question or a response.
    """
    places = "".join(traceback.format_tb(exc.__traceback__))
    logger.error("unexpected %s at\n%s", type(exc).__qualname__, places)


def _log_directly() -> None:
    assert _log is not None
    logging.root.removeHandler(_log)
    logging.root.addHandler(_log.direct)


def _open_closed_descriptors() -> None:
    """Opens /dev/null on the descriptors 0, 1 and 2 if they are closed.

    Otherwise the next opened file would get that number, and libraries and child processes would
    write their output into that file.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class TextFormatter(logging.Formatter):
    """Time, level and message: `2026-01-31T09:05:07.123Z INFO     the message`.

    Further lines of a message are indented, so that a name with a line end cannot forge a line.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The lines of the record, with escapes for characters that steer a terminal."""
        return printable(super().format(record)).replace("\n", "\n    ")

    def formatTime(  # noqa: N802 - the name is logging's
        self, record: logging.LogRecord, _datefmt: str | None = None
    ) -> str:
        """The time of the record."""
        return _time_of(record)


class JsonFormatter(logging.Formatter):
    """One JSON object in one line, with `time`, `level`, `logger` and `message`.

    `exception` has the traceback, if the record has one. The line of a request also has `key`,
    `request`, `status` and `ms`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of the record."""
        fields = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _time_of(record: logging.LogRecord) -> str:
    """The time of a record in UTC, as in ISO 8601, with milliseconds."""
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
