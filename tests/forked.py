"""Processes of `scope-judge` that fork from one that has imported it.

The imports are most of a start: one with the scripted judge takes 2.4 s of the processor, and a
fork of it 0.35 s.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.util import get_temp_dir
from pathlib import Path

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


class ForkedCommand:
    """A running `scope-judge` in a session of its own, used as a `subprocess.Popen`.

    Args:
        arguments: Arguments of the command.
        environment: All its environment variables.
        log: File to which it appends stdout and stderr.
    """

    def __init__(
        self, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path
    ) -> None:
        self._process = _FORKS.Process(
            target=_run, args=([*arguments], dict(environment), Path.cwd(), log)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        pid = self._process.pid
        assert pid is not None
        return pid

    def poll(self) -> int | None:
        """Its exit status, negative after a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it ends; returns its exit status.

        Raises:
            TimeoutExpired: It still runs after so many seconds.
        """
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("scope-judge", timeout or 0.0)
        return status

    def send_signal(self, which: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, which)


def _run(arguments: list[str], environment: dict[str, str], folder: Path, log: Path) -> None:
    os.setsid()
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
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
