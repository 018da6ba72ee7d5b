"""Binds child processes to their parent: the kernel kills them when the parent dies.

A child of Python's multiprocessing survives if its parent is killed with SIGKILL, as the kernel
does when memory runs out. Linux kills a child with its parent if the child requests it
(`PR_SET_PDEATHSIG`). vLLM's processes do not request it, so this module makes them: every process
that multiprocessing starts within `bound_children` requests it before it runs any other code, and
so do its own children. Both ways to start a process are covered: a forked child runs a hook of
`os.register_at_fork`, and a spawned child gets one more statement at the beginning of its program.

Ctrl-C, which a terminal sends to all processes of a command, does not reach the children: the
parent decides when they end. The signal is blocked in them, because vLLM's processes replace the
handler of a signal that is ignored.
"""

import ctypes
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import util
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
# The folder that contains `app`: a spawned child does not yet have its parent's `sys.path`.
_ROOT = str(Path(__file__).resolve().parents[2])


class _Binding(threading.local):
    """The pid that a thread's new children are bound to; None outside of `bound_children`.

    Thread-local, because the kernel kills a bound child when the thread that started it ends. The
    children of other threads must not be bound.
    """

    pid: int | None = None


_binding = _Binding()


@contextmanager
def bound_children() -> Iterator[None]:
    """Binds the children that this thread starts with multiprocessing within the block.

    The kernel kills them when this process or this thread ends, for whatever reason. On systems
    other than Linux, nothing is bound.
    """
    if sys.platform != "linux":
        yield
        return
    _install()
    before, _binding.pid = _binding.pid, os.getpid()
    try:
        yield
    finally:
        _binding.pid = before


def bind_to_parent(parent: int) -> None:
    """Binds this process to its parent, and its own children to this process.

    Args:
        parent: The pid of the parent. If this process has another parent by now, it is already an
            orphan, and it kills itself.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    _install()
    _binding.pid = os.getpid()


@functools.cache
def _install() -> None:
    original = util.spawnv_passfds

    def spawn(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        # multiprocessing also starts its resource tracker here, which must outlive its parent.
        if _binding.pid is None or "--multiprocessing-fork" not in args:
            return original(path, args, passfds)
        bound = list(args)
        program = bound.index("-c") + 1
        bound[program] = (
            f"import sys; sys.path.insert(0, {_ROOT!r}); "
            f"from {__name__} import bind_to_parent; bind_to_parent({_binding.pid}); "
            f"{bound[program]}"
        )
        # Python would print a traceback if Ctrl-C arrived before the child can ignore it. The
        # child inherits the blocked signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return original(path, bound, passfds)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    util.spawnv_passfds = spawn
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    if _binding.pid is not None:
        bind_to_parent(_binding.pid)
