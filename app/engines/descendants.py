"""Binds child processes to their parent: the kernel kills them when the parent dies.

A child of Python's multiprocessing survives if its parent is killed with SIGKILL, as the kernel
does when memory runs out. Linux kills a child with its parent if the child requests it
(`PR_SET_PDEATHSIG`). vLLM's processes do not request it, so this module makes them: every process
that multiprocessing starts within `bound_children` requests it before it runs any other code, and
so do its own children. No part of vLLM is patched. Both ways to start a process are covered: a
forked child runs a hook of `os.register_at_fork`, and a spawned child gets one more statement at
the beginning of its command line.

The children also ignore Ctrl-C, which a terminal sends to all processes of a command: the parent
decides when they end.
"""

import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import util
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
# Time between the moment at which an ending process closes its pipes and its end.
_ENDING_S = 0.5
_libc = ctypes.CDLL(None)
# The folder that contains `app`: a spawned child does not yet have its parent's `sys.path`.
_ROOT = str(Path(__file__).resolve().parents[2])


# The last argument of a command line with which multiprocessing spawns a process.
FORKING = "--multiprocessing-fork"

# Runs a spawned process's command line in a process that already exists, and returns its pid; None
# if it cannot.
Handover = Callable[[Sequence[str], Sequence[int]], int | None]
# multiprocessing's function that starts a process: path, command line, file descriptors -> pid.
Spawn = Callable[[Any, Sequence[str], Sequence[int]], int]


class _Starting(threading.local):
    """How a thread's new children start.

    Thread-local, because the kernel kills a bound child when the thread that started it ends. The
    children of other threads must not be bound.

    Attributes:
        pid: The pid that the children are bound to; None outside of `bound_children`.
        handover: Called first for each spawned child.
    """

    pid: int | None = None
    handover: Handover | None = None


_starting = _Starting()


@contextmanager
def bound_children(handover: Handover | None = None) -> Iterator[None]:
    """Binds the children that this thread starts with multiprocessing within the block.

    The kernel kills them when this process or this thread ends, for whatever reason. On systems
    other than Linux, nothing is bound.

    Args:
        handover: Gets the command line and the file descriptors of each child that is spawned. It
            may run them in a bound process that already exists and return its pid.
    """
    if sys.platform == "linux":
        _install()
    before = _starting.pid, _starting.handover
    _starting.pid, _starting.handover = os.getpid(), handover
    try:
        yield
    finally:
        _starting.pid, _starting.handover = before


def follow(parent: int) -> None:
    """Binds this process to its parent, and its own children to this process.

    Args:
        parent: The pid of the parent. If this process has another parent by now, it is already an
            orphan, and it kills itself.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = functools.partial(_print_later, sys.excepthook)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    _install()
    _starting.pid = os.getpid()


def _print_later(original: Callable[..., object], *error: object) -> None:
    """Prints an uncaught error of this process, unless its parent is ending.

    A parent that ends while it starts a child closes the pipe that the child reads, which is an
    error of the child. The kernel kills the child a moment later.
    """
    time.sleep(_ENDING_S)
    original(*error)


@functools.cache
def _install() -> None:
    os.register_at_fork(after_in_child=_after_fork)
    util.spawnv_passfds = functools.partial(_spawn, util.spawnv_passfds)


def _after_fork() -> None:
    if _starting.pid is not None:
        follow(_starting.pid)


def _spawn(original: Spawn, path: Any, command: Sequence[str], fds: Sequence[int]) -> int:
    """Spawns a process; multiprocessing also starts its resource tracker here, which must live."""
    if _starting.pid is None or FORKING not in command:
        return original(path, command, fds)
    pid = _starting.handover(command, fds) if _starting.handover else None
    return spawn_bound(path, command, fds, original) if pid is None else pid


def spawn_bound(
    path: Any, command: Sequence[str], fds: Sequence[int], original: Spawn = util.spawnv_passfds
) -> int:
    """Starts a process that is bound to this process and to this thread.

    Args:
        path: Path of the interpreter.
        command: Command line: Python, options, "-c", a program.
        fds: File descriptors that the process inherits.
        original: The function that starts a process.

    Returns:
        The pid of the process.
    """
    bound = list(command)
    bound[bound.index("-c") + 1] = (
        f"import sys; sys.path.insert(0, {_ROOT!r}); "
        f"from {__name__} import follow; follow({os.getpid()}); {program_of(command)}"
    )
    # Python would print a traceback if Ctrl-C arrived before the child can ignore it. The child
    # inherits the blocked signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return original(path, bound, fds)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def program_of(command: Sequence[str]) -> str:
    """The program in a command line: Python, options, "-c", a program."""
    return command[command.index("-c") + 1]
