"""A process that imports modules before it knows what to run.

vLLM runs its scheduler in a process that multiprocessing spawns. This process imports the same
modules as its parent, which takes as long again, and it starts only when the parent has imported
them. `early_process` starts it first, so that both import at the same time. It becomes the next
process that multiprocessing spawns: it receives the program, the file descriptors and the
environment, and goes on like any spawned process.
"""

import contextlib
import fcntl
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import spawn, util

from app.engines.descendants import FORKING, program_of, spawn_bound
from app.engines.imports import importing

# A spawned program names its descriptors by number. These numbers are kept free for them.
_LARGEST_FD = 255
# The beginnings of variables that a process reads once, when it starts or imports. Not the
# LD_LIBRARY_PATH: OpenCV, which vLLM imports, adds a folder that does not exist.
_READ_ONCE = ("LD_PRELOAD", "OMP_", "PYTHON")


class EarlyProcess:
    """A process that imports modules and then waits for a program.

    Args:
        modules: Names of the modules to import. One that cannot be imported is left out: the
            program reports the error when it needs the module.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._read_once = _read_once(os.environ)
        self._channel, theirs = socket.socketpair()
        with theirs:
            program = (
                f"import sys; sys.path[:] = {sys.path!r}; "
                f"from {__name__} import wait_for_program; "
                f"wait_for_program({theirs.fileno()}, {list(modules)!r})"
            )
            python = os.fsencode(spawn.get_executable())
            flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
            command = [sys.executable, *flags, "-c", program, FORKING]
            self._pid: int | None = spawn_bound(python, command, [theirs.fileno()])

    def become(self, command: Sequence[str], fds: Sequence[int]) -> int | None:
        """Makes this process run a spawned process's program; waits until its imports are done.

        Args:
            command: Command line of the process: Python, options, "-c", a program.
            fds: File descriptors that it inherits, in addition to 0, 1 and 2.

        Returns:
            The pid of this process. None if it cannot run the program, because it has ended, has
            become another process, or would have needed another environment when it started.
        """
        pid = self._pid
        if pid is None or self._read_once != _read_once(os.environ) or max(fds) > _LARGEST_FD:
            return None
        given = {"program": program_of(command), "fds": list(fds), "environ": dict(os.environ)}
        try:
            if not self._channel.recv(1):
                return None
            socket.send_fds(self._channel, [b"\0"], list(fds))
            self._channel.sendall(json.dumps(given).encode())
        except OSError:
            return None
        self._pid = None
        self._channel.close()
        return pid

    def close(self) -> None:
        """Ends the process, unless it has become another one."""
        self._channel.close()
        pid, self._pid = self._pid, None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


@contextmanager
def early_process(modules: Sequence[str]) -> Iterator[EarlyProcess]:
    """Starts an early process, which ends with the block if it has not become another one.

    The kernel kills it when the thread that entered the block ends.
    """
    process = EarlyProcess(modules)
    try:
        yield process
    finally:
        process.close()


def wait_for_program(channel: int, modules: Sequence[str]) -> None:
    """Imports modules, receives a program, and runs it; the main function of an early process.

    Returns at once if the parent closes the socket instead.

    Args:
        channel: File descriptor of a socket to the parent.
        modules: Names of the modules to import.
    """
    parent = socket.socket(fileno=fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, _LARGEST_FD + 1))
    os.close(channel)
    kept_free = _occupied()
    with importing(*modules):
        for module in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    with parent:
        with contextlib.suppress(BrokenPipeError):
            parent.sendall(b"\0")
        _, received, *_ = socket.recv_fds(parent, 1, _LARGEST_FD)
        if not received:
            return
        given = json.loads(b"".join(iter(lambda: parent.recv(2**16), b"")))
    for fd, number in zip(received, given["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    for number in kept_free - set(given["fds"]):
        os.close(number)
    _take(given["environ"])
    exec(given["program"], {"__name__": "__main__"})


def _occupied() -> set[int]:
    """Opens all free file descriptors up to the largest number that a program may name."""
    opened: set[int] = set()
    while True:
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if fd > _LARGEST_FD:
            os.close(fd)
            return opened
        opened.add(fd)


def _take(environ: Mapping[str, str]) -> None:
    """Makes the environment equal, and writes only what differs.

    setproctitle, with which vLLM names its process, looks for the variables where the kernel put
    them. A variable that is written again is elsewhere.
    """
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update({k: v for k, v in environ.items() if os.environ.get(k) != v})


def _read_once(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(_READ_ONCE)}
