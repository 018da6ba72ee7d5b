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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import spawn, util
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
# Time between the moment at which an ending process closes its pipes and its end.
_ENDING_S = 0.5
_libc = ctypes.CDLL(None)
# The folder that contains `app`: a spawned child does not yet have its parent's `sys.path`.
_ROOT = str(Path(__file__).resolve().parents[2])


class _Starting(threading.local):
    """The pid that a thread's new children are bound to; None outside of `bound_children`.

    Thread-local, because the kernel kills a bound child when the thread that started it ends. The
    children of other threads must not be bound.
    """

    pid: int | None = None


_starting = _Starting()


@contextmanager
def bound_children() -> Iterator[None]:
    """Binds the children that this thread starts with multiprocessing within the block.

    The kernel kills them when this process or this thread ends, for whatever reason. On systems
    other than Linux, nothing is bound.
    """
    if sys.platform == "linux":
        _install()
    before, _starting.pid = _starting.pid, os.getpid()
    try:
        yield
    finally:
        _starting.pid = before


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
    spawn.get_command_line = functools.partial(_command_line, spawn.get_command_line)
    util.spawnv_passfds = functools.partial(_spawn, util.spawnv_passfds)


def _after_fork() -> None:
    if _starting.pid is not None:
        follow(_starting.pid)


def _command_line(original: Any, **arguments: Any) -> list[str]:
    """The command of a spawned child: Python, options, "-c", a program."""
    command: list[str] = original(**arguments)
    if _starting.pid is not None:
        program = command.index("-c") + 1
        command[program] = (
            f"import sys; sys.path.insert(0, {_ROOT!r}); "
            f"from {__name__} import follow; follow({_starting.pid}); {command[program]}"
        )
    return command


def _spawn(original: Any, *arguments: Any) -> int:
    """Starts a child that inherits a blocked SIGINT.

    Python would print a traceback if the signal arrived before the child can ignore it.
    """
    if _starting.pid is None:
        return int(original(*arguments))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return int(original(*arguments))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
