"""Non-blocking standard output and error: a bounded queue, and a thread that writes.

A plain write to a pipe that nobody reads blocks forever, and blocks the event loop. Here a line is
dropped and counted if the queue is full.
"""

import atexit
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, TextIO, cast

# Most characters in the queue: about 10,000 lines of the access log.
_MOST_WAITING = 2**20
# The thread collects lines for this long before each write, because waking it for every line would
# cost more than the line itself.
_GATHER_S = 0.05
# Longest delay of the process's end until the remaining output is written.
_EXIT_WAIT_S = 1.0
_POLL_S = 0.001


class Writer:
    """Writes texts to a file descriptor, in order, on a daemon thread.

    Args:
        descriptor: File descriptor. Its flags are not changed, because other programs may share
            it.
        encoding: Encoding of the written bytes.
        most_waiting: Most characters in the queue; further lines are dropped.
    """

    def __init__(
        self, descriptor: int, *, encoding: str = "utf-8", most_waiting: int = _MOST_WAITING
    ) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._most_waiting = most_waiting
        self._texts: SimpleQueue[str] = SimpleQueue()
        # Reentrant, like the queue: a signal handler may log while its thread holds the lock.
        self._lock = threading.RLock()
        self._waiting = 0
        self._unreported = 0
        self._line_is_open = False
        self._inside_dropped_line = False
        self._is_failing = False
        self.dropped_lines = 0
        threading.Thread(target=self._run, name="output", daemon=True).start()

    def put(self, text: str) -> None:
        """Queues a text, or drops it if the queue is full; never blocks."""
        with self._lock:
            if self._inside_dropped_line or self._waiting + len(text) > self._most_waiting:
                self._drop(text)
                # Also drop the rest of this line: a line without its beginning is misleading.
                self._inside_dropped_line = not text.endswith("\n")
                return
            if self._unreported and not self._is_failing:
                self._report()
            self._queue(text)

    def wait_until(self, deadline: float) -> bool:
        """Waits until everything is written; returns False if the deadline passes first."""
        while self._waiting and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return not self._waiting

    def _queue(self, text: str) -> None:
        self._waiting += len(text)
        self._line_is_open = not text.endswith("\n")
        self._texts.put(text)

    def _drop(self, text: str) -> None:
        lines = text.count("\n")
        self._unreported += lines
        self.dropped_lines += lines

    def _report(self) -> None:
        begin = "\n" if self._line_is_open else ""
        count, self._unreported = self._unreported, 0
        message = f"{count} lines were dropped: the output was not read in time"
        record = logging.LogRecord(
            "app.output", logging.WARNING, __file__, 0, message, args=None, exc_info=None
        )
        self._queue(f"{begin}{_formatter.format(record)}\n")

    def _run(self) -> None:
        while True:
            text = self._next()
            try:
                self._write(text.encode(self._encoding, "backslashreplace"))
                failed = False
            except OSError:
                # The reader is gone or the disk is full. Both may recover, so the thread goes on.
                failed = True
            with self._lock:
                self._waiting -= len(text)
                self._is_failing = failed
                if failed:
                    self._drop(text)
                elif self._unreported and not self._waiting:
                    self._report()

    def _next(self) -> str:
        texts = [self._texts.get()]
        time.sleep(_GATHER_S)
        try:
            while True:
                texts.append(self._texts.get_nowait())
        except Empty:
            return "".join(texts)

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Another program that shares the descriptor has set O_NONBLOCK.
                ready = select.poll()
                ready.register(self._descriptor, select.POLLOUT)
                ready.poll()


class UnblockedStream:
    """A text stream that writes through a Writer and delegates the rest to the original stream."""

    def __init__(self, original: TextIO, writer: Writer) -> None:
        self.original = original
        self.writer = writer
        self._pid = os.getpid()
        self._deadline: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def write(self, text: str) -> int:
        """Queues a text; raises TypeError for bytes, like any text stream."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if os.getpid() != self._pid:
            # The writing thread does not exist after a fork.
            return self.original.write(text)
        self.writer.put(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Queues several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Returns at once; waits for the writer only after `finish`."""
        if os.getpid() != self._pid:
            self.original.flush()
        elif self._deadline is not None:
            self.writer.wait_until(self._deadline)

    def finish(self, deadline: float) -> None:
        """Makes every later flush wait, until the deadline at most."""
        if self._deadline is None:
            self._deadline = deadline


_streams: dict[str, UnblockedStream] = {}
_formatter = logging.Formatter("%(levelname)s:  %(message)s")


def format_log(formatter: logging.Formatter) -> None:
    """Sets the format of all log handlers, and of the line about dropped lines."""
    global _formatter
    _formatter = formatter
    for handler in _handlers():
        handler.setFormatter(formatter)


def unblock() -> None:
    """Replaces stdout and stderr in `sys` and in the log handlers; a second call does nothing.

    A stream that somebody has already replaced, as pytest does, stays.
    """
    if _streams:
        return
    _open_closed_descriptors()
    writers: list[Writer] = []
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is not getattr(sys, f"__{name}__"):
            continue
        # Python sets the stream to None if the descriptor was closed at the start.
        original = getattr(sys, name) or os.fdopen(descriptor, "w", closefd=False)
        # If both are the same file, they share one writer, so that lines keep their order.
        shared = bool(writers) and os.path.sameopenfile(1, 2)
        writer = writers[0] if shared else Writer(descriptor, encoding=original.encoding)
        writers.append(writer)
        _streams[name] = stream = UnblockedStream(original, writer)
        setattr(sys, name, stream)
        for handler in _handlers():
            if handler.stream is original:
                handler.setStream(cast(TextIO, stream))
    if _streams:
        atexit.register(_at_exit)


def finish() -> None:
    """Call this when the process ends: flushes now wait for the output, one second in total."""
    deadline = time.monotonic() + _EXIT_WAIT_S
    for stream in _streams.values():
        stream.finish(deadline)


def dropped_lines() -> int:
    """Number of lines that were dropped since the start."""
    return sum(writer.dropped_lines for writer in {stream.writer for stream in _streams.values()})


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


def _handlers() -> Iterator["logging.StreamHandler[Any]"]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        # The dictionary also has placeholders, which have no handlers.
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                yield handler


def _at_exit() -> None:
    finish()
    for name, stream in _streams.items():
        stream.flush()
        if stream.writer.wait_until(0.0):
            # The thread ends with the interpreter, so later output is written directly.
            setattr(sys, name, stream.original)
