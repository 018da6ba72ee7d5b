"""Standard output and error that never wait for their reader: a queue, and a thread that writes.

A plain write to a pipe that nobody reads blocks for ever, and the event loop with it. Here a line
that finds the queue full is dropped and counted.
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

# Characters that may wait for a reader: some 10,000 lines of the access log.
_MOST_WAITING = 2**20
# Lines are gathered for so long before a write: to wake the thread for each line would cost more
# than the line.
_GATHER_S = 0.05
# How long all output together may hold up the end of the process.
_LAST_WORDS_S = 1.0
_POLL_S = 0.001


class Writer:
    """Writes texts to a file descriptor, in order, on a daemon thread.

    Args:
        descriptor: Its flags stay as they are: other programs may share it.
        encoding: Of the bytes that are written.
        most_waiting: Characters that may wait; more are dropped.
    """

    def __init__(
        self, descriptor: int, *, encoding: str = "utf-8", most_waiting: int = _MOST_WAITING
    ) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._most_waiting = most_waiting
        self._texts: SimpleQueue[str] = SimpleQueue()
        # Reentrant, as the queue is: a signal handler may log while this thread holds the lock.
        self._lock = threading.RLock()
        self._waiting = 0
        self._unreported = 0
        self._line_is_open = False
        self._inside_dropped_line = False
        self._is_failing = False
        self.dropped_lines = 0
        threading.Thread(target=self._run, name="output", daemon=True).start()

    def put(self, text: str) -> None:
        """Queues a text, or drops it; never blocks."""
        with self._lock:
            if self._inside_dropped_line or self._waiting + len(text) > self._most_waiting:
                self._drop(text)
                # The rest of a line whose beginning is missing would be misread.
                self._inside_dropped_line = not text.endswith("\n")
                return
            if self._unreported and not self._is_failing:
                self._report()
            self._queue(text)

    def wait_until(self, deadline: float) -> bool:
        """Waits until everything is written; False where the deadline passes first."""
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
        self._queue(f"{begin}WARNING:  {count} lines were dropped: nothing read them in time\n")

    def _run(self) -> None:
        while True:
            text = self._next()
            try:
                self._write(text.encode(self._encoding, "backslashreplace"))
                failed = False
            except OSError:
                # The reader is gone, or the disk is full: both may end.
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
    """A text stream that leaves writing to a Writer; everything else is the original stream's."""

    def __init__(self, original: TextIO, writer: Writer) -> None:
        self.original = original
        self.writer = writer
        self._pid = os.getpid()
        self._deadline: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def write(self, text: str) -> int:
        """Queues a text; raises TypeError for bytes, as a text stream does."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if os.getpid() != self._pid:
            # After a fork there is no thread to write.
            return self.original.write(text)
        self.writer.put(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Queues several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Waits for nothing, until the process ends."""
        if os.getpid() != self._pid:
            self.original.flush()
        elif self._deadline is not None:
            self.writer.wait_until(self._deadline)

    def finish(self, deadline: float) -> None:
        """From now on a flush waits, until the deadline at most."""
        if self._deadline is None:
            self._deadline = deadline


_streams: dict[str, UnblockedStream] = {}


def unblock() -> None:
    """Replaces stdout and stderr, in `sys` and in the log's handlers; a second call does nothing.

    A stream that somebody put in the place of the process's own, as tests do, is left alone.
    """
    if _streams:
        return
    _open_closed_descriptors()
    writers: list[Writer] = []
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is not getattr(sys, f"__{name}__"):
            continue
        # Python has no stream where the descriptor was closed.
        original = getattr(sys, name) or os.fdopen(descriptor, "w", closefd=False)
        # One writer for both where they are the same file: lines keep their order.
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
    """Begins the end of the process: what is written now is waited for, one second in all."""
    deadline = time.monotonic() + _LAST_WORDS_S
    for stream in _streams.values():
        stream.finish(deadline)


def dropped_lines() -> int:
    """Lines that were not written since the start."""
    return sum(writer.dropped_lines for writer in {stream.writer for stream in _streams.values()})


def _open_closed_descriptors() -> None:
    """Gives 0, 1 and 2 to /dev/null where they are closed.

    The next file that is opened would get the number, and the output of libraries and child
    processes with it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _handlers() -> Iterator["logging.StreamHandler[Any]"]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        # Besides loggers there are placeholders for parents that nobody asked for.
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                yield handler


def _at_exit() -> None:
    finish()
    for name, stream in _streams.items():
        stream.flush()
        if stream.writer.wait_until(0.0):
            # The thread ends with the interpreter; what is said after that is written directly.
            setattr(sys, name, stream.original)
