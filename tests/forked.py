"""Processes of `scope-judge` that fork from one that has imported it.

The imports are most of a start: one with the scripted judge takes 2.4 s of the processor, and a
fork of it 0.35 s.
"""

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, cast

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.forked_imports"])


def _make_short_folder() -> None:
    """Makes multiprocessing's folder of sockets in /tmp.

    The path of a socket has at most 107 characters, and the temporary folder of the tests may have
    more.
    """
    before = tempfile.tempdir
    tempfile.tempdir = "/tmp"
    try:
        get_temp_dir()
    finally:
        tempfile.tempdir = before


_make_short_folder()


class _Descriptor:
    """A file descriptor that a fork gets a duplicate of."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[object, ...]:
        return _detached, (reduction.DupFd(self._number),)


def _detached(duplicate: Any) -> int:
    return cast("int", duplicate.detach())


class ForkedCommand:
    """A running `scope-judge` in a session of its own, used as a `subprocess.Popen`.

    Its output is appended to a file, or goes to the terminal with this descriptor.
    """

    def __init__(
        self, arguments: Sequence[str], *, environment: Mapping[str, str], output: Path | int
    ) -> None:
        place = output if isinstance(output, Path) else _Descriptor(output)
        self._process = _FORKS.Process(
            target=_run, args=([*arguments], dict(environment), Path.cwd(), place)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, as `poll` returns it."""
        return self.poll()

    def poll(self) -> int | None:
        """Its exit status, negative after a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it ends, or raises TimeoutExpired; returns its exit status."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("scope-judge", timeout or 0.0)
        return status

    def send_signal(self, which: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """Kills it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def _run(
    arguments: list[str], environment: dict[str, str], folder: Path, output: Path | int
) -> None:
    os.setsid()
    if isinstance(output, Path):
        with output.open("ab") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
    else:
        _take_terminal(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["scope-judge", *arguments]
    from app.cli import main
    from app.observability import logs

    try:
        main()
    finally:
        # multiprocessing calls no functions of `atexit`.
        logs.finish()


def _take_terminal(descriptor: int) -> None:
    """Makes it the terminal of this session, so that Ctrl-C and its end reach the command."""
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
    for standard in (0, 1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, closefd=False) for n in (1, 2))
    # It is ignored where `nohup` runs the tests.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
