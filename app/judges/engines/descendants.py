"""Binds child processes to their parent: the kernel kills them when the parent dies.

A child of Python's multiprocessing survives if its parent is killed with SIGKILL, as the kernel
does when memory runs out. Linux kills a child with its parent if the child requests it
(`PR_SET_PDEATHSIG`), which vLLM's engine does not do; the workers of a dead engine end themselves.

Ctrl-C, which a terminal sends to all processes of a command, does not reach the children: the
parent decides when they end. The signal is blocked in them, because vLLM's processes replace the
handler of a signal that is ignored.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import util
from typing import Any

_PR_SET_PDEATHSIG = 1
# The first statements of a child; a child whose parent has died by then kills itself.
_BIND = (
    "import ctypes, os, signal; "
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL, 0, 0, 0); "
    "os.getppid() == {parent} or os.kill(os.getpid(), signal.SIGKILL); "
)


@contextmanager
def bound_children() -> Iterator[None]:
    """Binds the children that multiprocessing spawns within the block; only on Linux.

    The kernel kills them when this process, or the thread that made them, ends.
    """
    if sys.platform != "linux":
        yield
        return
    original = util.spawnv_passfds

    def spawn(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        # multiprocessing also starts its resource tracker here, which must outlive its parent.
        if "--multiprocessing-fork" not in args:
            return original(path, args, passfds)
        bound = list(args)
        program = bound.index("-c") + 1
        bound[program] = _BIND.format(parent=os.getpid()) + bound[program]
        # The child inherits the blocked signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return original(path, bound, passfds)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    util.spawnv_passfds = spawn
    try:
        yield
    finally:
        util.spawnv_passfds = original
