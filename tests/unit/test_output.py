"""Tests that output never blocks the program."""

import logging
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.output import UnblockedStream, Writer

_LONG_S = 30.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture(autouse=True)
def _plain_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the format of a process that has not set up its log; other tests set it up."""
    plain = logging.Formatter("%(levelname)s:  %(message)s")
    monkeypatch.setattr("app.output._formatter", plain)


def fill(writing: int) -> int:
    """Writes until the pipe is full; returns the number of written bytes."""
    os.set_blocking(writing, False)
    count = 0
    try:
        while True:
            count += os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
        return count


def read_all(reading: int, writer: Writer) -> str:
    """Reads everything that is written from now on."""
    os.set_blocking(reading, False)
    read, deadline = b"", time.monotonic() + _LONG_S
    while time.monotonic() < deadline:
        written = writer.wait_until(0.0)
        try:
            read += os.read(reading, 2**20)
        except BlockingIOError:
            if written:
                break
            time.sleep(0.001)
    return read.decode()


def test_texts_are_written_in_order(pipe: tuple[int, int]) -> None:
    writer = Writer(pipe[1])
    for number in range(1000):
        writer.put(f"line {number}\n")
    assert read_all(pipe[0], writer) == "".join(f"line {number}\n" for number in range(1000))
    assert writer.dropped_lines == 0


def test_dropped_lines_are_reported_once_the_reader_is_back(
    pipe: tuple[int, int],
) -> None:
    filled = fill(pipe[1])
    writer = Writer(pipe[1], most_waiting=100)
    for number in range(30):
        writer.put(f"line {number:4}\n")
    assert writer.dropped_lines == 20
    told = read_all(pipe[0], writer)[filled:]
    assert told == (
        "".join(f"line {number:4}\n" for number in range(10))
        + "WARNING:  20 lines were dropped: the output was not read in time\n"
    )
    writer.put("next\n")
    assert read_all(pipe[0], writer) == "next\n"


def test_the_rest_of_a_line_is_dropped_with_its_beginning(pipe: tuple[int, int]) -> None:
    filled = fill(pipe[1])
    writer = Writer(pipe[1], most_waiting=10)
    writer.put("12345")
    writer.put("a text that is too long")
    writer.put("!")
    writer.put("\n")
    assert writer.dropped_lines == 1
    told = read_all(pipe[0], writer)[filled:]
    assert told == "12345\nWARNING:  1 lines were dropped: the output was not read in time\n"


def test_without_a_reader_each_line_is_counted_once() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = Writer(writing)
    for number in range(100):
        writer.put(f"line {number}\n")
        if number % 10 == 0:
            assert writer.wait_until(time.monotonic() + _LONG_S)
    assert writer.wait_until(time.monotonic() + _LONG_S)
    assert writer.dropped_lines == 100
    os.close(writing)


def test_the_thread_waits_for_a_non_blocking_descriptor(
    pipe: tuple[int, int],
) -> None:
    filled = fill(pipe[1])
    os.set_blocking(pipe[1], False)
    writer = Writer(pipe[1])
    writer.put("late\n")
    assert read_all(pipe[0], writer)[filled:] == "late\n"


def test_a_flush_waits_for_the_reader_only_at_the_end(pipe: tuple[int, int]) -> None:
    fill(pipe[1])
    with os.fdopen(pipe[1], "w", closefd=False) as original:
        stream = UnblockedStream(original, Writer(pipe[1]))
        stream.write("never read\n")
        stream.flush()
        began = time.monotonic()
        stream.finish(began + 0.1)
        stream.flush()
        assert time.monotonic() - began >= 0.1
        # The limit is for all flushes together.
        began = time.monotonic()
        for _ in range(100):
            stream.flush()
        assert time.monotonic() - began < 0.1
        read_all(pipe[0], stream.writer)


def test_everything_else_comes_from_the_original_stream(pipe: tuple[int, int]) -> None:
    with os.fdopen(pipe[1], "w", closefd=False, encoding="latin-1") as original:
        stream = UnblockedStream(original, Writer(pipe[1], encoding="latin-1"))
        assert (stream.fileno(), stream.isatty(), stream.encoding) == (pipe[1], False, "latin-1")
        with pytest.raises(TypeError, match="must be str, not bytes"):
            stream.write(b"")  # type: ignore[arg-type]
        # Characters that cannot be encoded are written as escapes, because logging must not fail.
        stream.writelines(["\u00e9", "\u4e2d\ud800\n"])
        assert stream.writer.wait_until(time.monotonic() + _LONG_S)
        assert os.read(pipe[0], 100) == b"\xe9\\u4e2d\\ud800\n"


PROGRAM = """
import logging, sys
from rich.progress import Progress, BarColumn
from app import output
if sys.argv[1:]:
    output.unblock()
from app.cli.console import console
logging.basicConfig(format="%(levelname)s: %(message)s")
bar = Progress(BarColumn(), console=console, auto_refresh=False)
for done in range(3):
    console.print(f"[bold]stage[/] {done}")
    print("on stdout", done)
    with bar:
        task = bar.add_task("", total=3)
        bar.update(task, completed=done, refresh=True)
        print("above the bar")
    logging.warning("a warning")
    sys.stderr.write(f"\\rat {done}")
    sys.stderr.flush()
print(sys.stdout.isatty(), sys.stderr.isatty(), file=sys.stderr)
"""


def on_a_terminal(*words: str) -> str:
    """Everything that a program writes to a terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, *words]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    try:
        while part := os.read(master, 65536):
            seen += part
    except OSError:
        # Linux raises this error after the last program has closed the terminal.
        pass
    os.close(master)
    assert process.wait(_LONG_S) == 0, seen
    return seen.decode()


def test_a_terminal_shows_the_same_output_in_the_same_order() -> None:
    before, after = on_a_terminal(), on_a_terminal("unblocked")
    assert "\x1b[" in after
    assert "True True" in after
    assert after == before


def test_a_shared_file_gets_the_lines_of_both_streams_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = (
        "import sys; from app import output; output.unblock()\n"
        "for i in range(200): print(i, file=(sys.stdout, sys.stderr)[i % 2])"
    )
    with path.open("wb") as log:
        subprocess.run([sys.executable, "-c", program], stdout=log, stderr=log, check=True)
    assert path.read_text().split() == [str(number) for number in range(200)]


def test_a_forked_child_writes_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = (
        "import os, sys; from app import output; output.unblock()\n"
        "if os.fork() == 0:\n"
        "    print('child', flush=True); os._exit(0)\n"
        "os.wait(); print('parent')"
    )
    with path.open("wb") as log:
        subprocess.run([sys.executable, "-c", program], stdout=log, stderr=log, check=True)
    assert path.read_text().split() == ["child", "parent"]
